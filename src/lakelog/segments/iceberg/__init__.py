"""The metadata of an Iceberg table over segments: Avro files, manifests, schema, snapshots. It opens no segment."""
