"""Handlers and their rights: each check of a row of `table` is put around the handler, the first outermost.

An element that is refused never reaches the handler: it is taken out of a copy of the request, and the API's own
`error_response` answers it. These answers then join those of the handler.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from klamm.broker.apis.rights.asker import REFUSED, Asker
from klamm.broker.apis.rights.table import Check, Each, Right, Row, Silent, Special, Whole
from klamm.broker.security.authorizer.codes import CLUSTER_NAME
from klamm.protocol.errors import KafkaError
from klamm.protocol.wire import ZERO_UUID

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker
    from klamm.broker.security.authorizer.audit import AuditLog
    from klamm.broker.security.authorizer.standard import StandardAuthorizer

Handle = Callable[["Broker", "RequestContext", Any], Any]
"""Answers a request: with a response, None, or what can be awaited for one."""

Refuse = Callable[[Any, KafkaError, int], Any]
"""The error response of an API, for a request and a version."""

MANY = 500  # elements, that are asked about in turns


class Guarded(NamedTuple):
    """What a check goes around."""

    handle: Handle
    refuse: Refuse


def guarded(
    handle: Handle, row: Row, name: str, refuse: Refuse, authorizer: StandardAuthorizer, audit: AuditLog
) -> Handle:
    """The handler of an API, so that it answers only what its client may ask for. Super users are not asked about."""
    inner = handle
    for check in reversed(row):
        inner = _around(check, Guarded(inner, refuse))

    def handle_guarded(broker: Broker, context: RequestContext, request: Any) -> Any:
        connection = context.connection
        if authorizer.is_super(connection.principal) and not audit.has_allowed:
            return handle(broker, context, request)
        context.ask = Asker(authorizer, audit, connection, name)
        return inner(broker, context, request)

    return handle_guarded


def guarded_large(
    handle: Handle, row: Row, name: str, refuse: Refuse, authorizer: StandardAuthorizer, audit: AuditLog
) -> Callable[[Broker, RequestContext, Any], Awaitable[Any]]:
    """The same for requests of very many elements."""
    handle_guarded = guarded(handle, row, name, refuse, authorizer, audit)

    async def handle_large(broker: Broker, context: RequestContext, request: Any) -> Any:
        response = handle_guarded(broker, context, request)
        return await response if inspect.isawaitable(response) else response

    return handle_large


def _around(check: Check, inner: Guarded) -> Handle:
    if isinstance(check, Whole):
        return partial(_whole, check, inner)
    if isinstance(check, Each):
        return partial(_each, check, inner)
    if isinstance(check, Silent):
        return partial(_silent, check, inner)
    assert isinstance(check, Special)
    module, _, function = check.function.partition(".")
    special = getattr(importlib.import_module(f"klamm.broker.apis.rights.{module}"), function)
    return partial(special, inner)


def _whole(check: Whole, inner: Guarded, broker: Broker, context: RequestContext, request: Any) -> Any:
    name = getattr(request, check.name) if check.name else CLUSTER_NAME
    context.ask.need(check.right, name)
    return inner.handle(broker, context, request)


def _each(check: Each, inner: Guarded, broker: Broker, context: RequestContext, request: Any) -> Any:
    elements = getattr(request, check.elements)
    if not elements:
        return inner.handle(broker, context, request)

    def may(element: Any) -> bool:
        name = name_of(broker, element, check.name)
        return name is None or context.ask.may(check.right, name)

    return split(inner, broker, context, request, check, may, REFUSED[check.right.resource])


def _silent(check: Silent, inner: Guarded, broker: Broker, context: RequestContext, request: Any) -> Any:
    show = partial(show_only, broker, context.ask, check)
    return after(inner.handle(broker, context, request), show)


def show_only(broker: Broker, ask: Asker, check: Silent, response: Any) -> Any:
    """The response with the elements that the client may see; what can be awaited for it, if they are very many."""
    if len(getattr(response, check.answers)) > MANY:
        return _show_in_turns(broker, ask, check, response)
    return _show(ask, check, response)


async def _show_in_turns(broker: Broker, ask: Asker, check: Silent, response: Any) -> Any:
    names = [getattr(answer, check.name) for answer in getattr(response, check.answers)]
    await ask_in_turns(broker, ask, check.right, names)
    return _show(ask, check, response)


def _show(ask: Asker, check: Silent, response: Any) -> Any:
    answers = getattr(response, check.answers)
    visible = [answer for answer in answers if ask.may(check.right, getattr(answer, check.name), quiet=True)]
    setattr(response, check.answers, visible)
    return response


# -- for the special ones, too ----------------------------------------------------------------------------------


def name_of(broker: Broker, element: Any, field: str) -> str | None:
    """The name of what an element is about; None for the id of a topic that is not there, which anybody may learn."""
    if isinstance(element, str):
        return element
    name: str = getattr(element, field) or ""
    if name:
        return name
    topic_id = getattr(element, "topic_id", ZERO_UUID)
    if topic_id == ZERO_UUID:
        return name
    topic = broker.image.topics_by_id.get(topic_id)
    return topic.name if topic is not None else None


def split(
    inner: Guarded,
    broker: Broker,
    context: RequestContext,
    request: Any,
    lists: Each,
    may: Callable[[Any], bool],
    error: Callable[[], KafkaError],
) -> Any:
    """Have the elements handled that `may` lets pass, and the others refused with the error."""
    elements = getattr(request, lists.elements)
    refused = [element for element in elements if not may(element)]
    if not refused:
        return inner.handle(broker, context, request)
    refusals = inner.refuse(copy_with(request, lists.elements, refused), error(), context.api_version)
    if len(refused) == len(elements):
        return refusals
    passed = {id(element) for element in refused}
    rest = copy_with(request, lists.elements, [element for element in elements if id(element) not in passed])
    return after(inner.handle(broker, context, rest), partial(joined, refusals, lists.answers))


def joined(refusals: Any, answers: str, response: Any) -> Any:
    """The response with the refusals, too."""
    setattr(response, answers, [*getattr(response, answers), *getattr(refusals, answers)])
    return response


def after(response: Any, change: Callable[[Any], Any]) -> Any:
    """The response as `change` makes it, when it is there. None, which is never sent, stays None."""
    if inspect.isawaitable(response):
        return _after(response, change)
    return None if response is None else change(response)


async def _after(response: Awaitable[Any], change: Callable[[Any], Any]) -> Any:
    found = await response
    changed = None if found is None else change(found)
    return await changed if inspect.isawaitable(changed) else changed


def copy_with(request: Any, field: str, value: Any) -> Any:
    """A copy of a request, or of a part of one, with another value in one field."""
    copy = object.__new__(type(request))
    for name in type(request).__slots__:
        setattr(copy, name, getattr(request, name))
    setattr(copy, field, value)
    return copy


async def ask_in_turns(broker: Broker, ask: Asker, right: Right, names: Sequence[str]) -> None:
    """Ask about very many resources, so that the answers are known."""
    for start in range(0, len(names), MANY):
        await broker.turns.next()
        for name in names[start : start + MANY]:
            ask.may(right, name, quiet=True)


def seen(ask: Asker, right: Right, names: Iterable[str]) -> list[str]:
    """The names that the client has the right to. The others are not audited."""
    return [name for name in names if ask.may(right, name, quiet=True)]
