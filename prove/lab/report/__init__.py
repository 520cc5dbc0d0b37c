"""The report of a run: `report.json`, and the self-contained page `report.html`."""
