"""Dead letters as a table, and their redrive."""
