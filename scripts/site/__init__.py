"""The documentation site: `scripts/docs build` and `scripts/docs serve`.

`staging` copies the pages and rewrites links that leave docs/, Zensical renders them, `llms` adds the text forms, and
`links` checks what was rendered. Navigation and theme are in mkdocs.yml.
"""
