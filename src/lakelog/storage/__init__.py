"""The two storage seams (catalog, partition store) and what implements them."""
