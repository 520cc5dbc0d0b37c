"""The laboratory: real servers, clients and PostgreSQL under load and faults, whose histories are then judged."""
