"""A shop with one model, one view and one handler."""
