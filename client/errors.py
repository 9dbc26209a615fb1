"""The errors between a client and one node. Error codes inside responses are left to the caller."""

from __future__ import annotations


class ClientError(Exception):
    """Base of all errors that the client itself raises."""


class ConnectionClosed(ClientError, ConnectionError):
    """The node closed the connection, could not be reached, or this side closed it; open requests are lost."""


class ClientTimeout(ClientError, TimeoutError):
    """No response in time. The connection is closed, as a late response would be taken for the next one's."""


class NoCommonVersion(ClientError):
    """No version of the API is known to both sides."""


class UnexpectedResponse(ClientError):
    """A frame that answers no request, or bytes that are no such response. The connection is closed."""
