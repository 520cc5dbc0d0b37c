"""Tests of the HTTP shapes that server and client share."""
