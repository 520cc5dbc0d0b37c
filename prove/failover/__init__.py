"""Promotions of standbys under load on two clusters, with an own record of every acknowledged message."""
