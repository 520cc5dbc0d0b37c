"""The web console: pages about topics, groups and servers, rendered on the server.

It uses the async client with the viewer's own token, so that a viewer sees and changes what the API allows for this
token, and nothing else. `create_console` makes the ASGI app.
"""

from lakelog.console.app import create_console
from lakelog.console.codes import LoginCodes
from lakelog.console.servers import LocalServer, RemoteServers

__all__ = ["LocalServer", "LoginCodes", "RemoteServers", "create_console"]
