"""The handlers: `lakelog worker signups.letters:log` runs them."""

import lakelog

SIGNUPS, REMINDERS = "signups", "reminders"

log = lakelog.connect()


@log.topic(SIGNUPS).subscribe(group="welcome", start_from="earliest")
def welcome(signup: dict[str, str]) -> None:
    print(f"to {signup['email']}: welcome")


@log.topic(REMINDERS).subscribe(group="reminder", start_from="earliest")
def remind(signup: dict[str, str]) -> None:
    print(f"to {signup['email']}: do you like it?")
