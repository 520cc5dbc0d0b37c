"""The results of a run for people: `report.json`, and the self-contained page `report.html`."""
