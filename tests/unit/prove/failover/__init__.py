"""Tests of the failover command."""
