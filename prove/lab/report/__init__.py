"""What a run has shown, for people: `report.json`, and one page that needs nothing else, `report.html`."""
