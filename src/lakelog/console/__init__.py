"""The web console: pages about topics, groups and servers, rendered on the server.

It is a customer of the client and uses the viewer's own token, so that it shows and changes what the API allows to the
viewer, and nothing else. `create_console` makes the ASGI app.
"""

from lakelog.console.app import create_console
from lakelog.console.codes import LoginCodes
from lakelog.console.servers import LocalServer, RemoteServers

__all__ = ["LocalServer", "LoginCodes", "RemoteServers", "create_console"]
