"""The sealed segment: a range of one partition as a Parquet file.

It is written once, read in parts, and verified as a whole.

This package does not choose the offsets of a file and registers nothing.
"""
