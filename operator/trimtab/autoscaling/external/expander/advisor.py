"""Asking the server, between two plans of one pass."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from trimtab.api import reasons
from trimtab.autoscaling.external.expander import expander_pb2 as pb
from trimtab.autoscaling.external.expander.messages import request
from trimtab.autoscaling.external.grpc_channel import CallFailed, GrpcChannel
from trimtab.autoscaling.external.settings import GrpcEndpoint
from trimtab.autoscaling.groups import Problem
from trimtab.autoscaling.scale_up.expanders.advice import Advice, Question

T = TypeVar("T")

NAME: Final = "Grpc"
"""The expander's name in ``spec.expanders``."""
PATH: Final = "/grpcplugin.Expander/BestOptions"
SECONDS: Final = 2.0
"""For one answer: pods wait for it."""
MOST: Final = 16
"""Questions in one pass; each means a plan anew. Of what is left the next expander decides."""
TOGETHER: Final = 4.0
"""Seconds after which no further question is asked in a pass: others wait for their turn meanwhile."""


class Advisor:
    """Gets advice for plans.

    Args:
        channel: to the server; ``None`` where none is named, and then nobody is asked.

    Attributes:
        problem: what keeps the server from being heard; ``None`` where nothing does.
    """

    def __init__(self, channel: GrpcChannel | None) -> None:
        self.problem: Problem | None = None
        self._channel = channel

    async def advised(self, plan: Callable[[Advice], Awaitable[T]]) -> T:
        """A plan that goes by the server's answers, as far as it gives any.

        Args:
            plan: makes the plan; asked again with each answer.
        """
        advice = Advice()
        made = await plan(advice)
        if advice.open is not None:
            self.problem = None
        loop = asyncio.get_running_loop()
        enough = loop.time() + TOGETHER
        for number in range(MOST):
            question = advice.open
            if question is None or (number and loop.time() > enough):
                break
            try:
                advice.add(question, await self._ask(question))
            except CallFailed as error:
                message = f"the expander Grpc is not heard, and the next one decides: {error}"
                self.problem = Problem("Expander", "", NAME, reasons.PROVIDER_UNREACHABLE, message)
                break
            made = await plan(advice)
        return made

    async def close(self) -> None:
        """Let go of the connection."""
        if self._channel is not None:
            await self._channel.close()

    async def _ask(self, question: Question) -> tuple[str, ...]:
        if self._channel is None:
            raise CallFailed("UNAVAILABLE", "no server is named: --expander-grpc-address")
        await self._channel.renew()
        answer = await self._channel.call(PATH, request(question), pb.Answer)
        return tuple(option.group for option in answer.options)


def advisor(endpoint: GrpcEndpoint | None, *, seconds: float = SECONDS) -> Advisor:
    """The advisor of a process.

    Args:
        endpoint: where the server is; ``None`` where there is none.
        seconds: for one answer.
    """
    return Advisor(None if endpoint is None else GrpcChannel(endpoint, seconds=seconds))
