"""Sign-ups that are published by a web application, and the letters that follow."""
