"""The web application: `flask --app signups.web run`."""

from datetime import timedelta

from flask import Flask, abort, request

from signups.letters import REMINDERS, SIGNUPS, log


def create_app() -> Flask:
    app = Flask(__name__)
    for name in (SIGNUPS, REMINDERS):
        log.topic(name).create(if_missing=True)

    @app.post("/signups")
    def sign_up() -> tuple[dict[str, str], int]:
        email = request.form.get("email") or abort(400, "Give an email.")
        receipt = log.topic(SIGNUPS).publish({"email": email}, key=email, idempotency_key=email)
        log.topic(REMINDERS).publish({"email": email}, key=email, idempotency_key=email, delay=timedelta(days=1))
        return {"id": receipt.id}, 202

    @app.get("/backlog")
    def backlog() -> dict[str, int]:
        return {group.name: group.lag for group in log.groups()}

    return app
