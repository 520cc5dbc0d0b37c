"""Client processes of a run. Each is a small module, run as `python -m prove.lab.load.producer PLAN`."""
