"""Parts of replays."""
