"""A server of the Model Context Protocol, through which a language model asks questions about an installation.

It only reads, through the client with the user's own URL and token, so that it can do nothing the user cannot. Only
package with the protocol's SDK.
"""
