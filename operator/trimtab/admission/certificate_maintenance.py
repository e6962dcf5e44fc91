"""Keeps a serving certificate up to date that all replicas share, and what makes the API server trust it.

Every replica runs this loop. An iteration starts when one of the watched objects changes, and when a certificate is due
for renewal::

    Secret + registered caBundles -> next certificates -> Secret            (:mod:`trimtab.admission.certificates`)
    Secret                        -> the certificate that this replica serves
    Secret                        -> registered objects, such as webhook configurations or an APIService

The replicas compute the same from the same objects, and write only what differs, so they need no leader.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable
from typing import Final, Protocol

from trimtab.admission.certificates import (
    Certificates,
    CertificateSecret,
    Lifetimes,
    ServedCertificate,
    TrustTracker,
    expires,
    next_certificates,
    read_certificates,
    store_certificates,
    trust_bundle,
)
from trimtab.controller.loop import Loop
from trimtab.kube.api import Api, ApiError, Unreachable
from trimtab.kube.clock import Clock
from trimtab.kube.errors import InputError
from trimtab.kube.retry import Backoff
from trimtab.kube.watching.store import Store

log = logging.getLogger(__name__)

CHECK_PERIOD: Final = 30.0
"""Maximum seconds between two iterations."""
RETRY: Final = Backoff(initial=0.2, maximum=15.0)
WRITE_AGAIN_AFTER: Final = 1.0
"""Seconds after which the same objects are written again if the watch still delivers others."""


class CertificateSettings(Protocol):
    """The settings of :class:`CertificateMaintenance`."""

    @property
    def namespace(self) -> str:
        """The operator's namespace, with the Secret and the Service."""
        ...

    @property
    def secret(self) -> str:
        """Name of the Secret with the certificate."""
        ...

    @property
    def issue(self) -> bool:
        """Whether trimtab issues the certificates; false if the Secret has another owner."""
        ...

    @property
    def lifetimes(self) -> Lifetimes:
        """The lifetimes of certificates."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """The names that the serving certificate must have."""
        ...


class CertificateMaintenance(Loop):
    """The loop that maintains the certificate, and registers it.

    Args:
        name: name of the loop for logs, metrics and health checks.
        what: what is registered, for log messages.
        api: the API server.
        settings: the settings.
        secrets: the store with the Secret.
        serve: starts to serve a certificate and its private key, as PEM.
        clock: provides the time.
        expiry: called with the expiry of the served certificate in seconds since the epoch.

    Attributes:
        problem: why certificates or registered objects are not up to date; empty if they are.
        certificate_problem: why this replica serves no certificate that the API server trusts; empty if it does.
        registered: whether the registered objects are the wanted ones.
    """

    def __init__(
        self,
        name: str,
        what: str,
        api: Api,
        settings: CertificateSettings,
        *,
        secrets: Store[CertificateSecret],
        serve: Callable[[bytes, bytes], None],
        clock: Clock,
        expiry: Callable[[float], None] = lambda _at: None,
    ) -> None:
        super().__init__(name, clock)
        self.problem = ""
        self.certificate_problem = "no certificate is loaded yet"
        self.registered = False
        self._api = api
        self._clock = clock
        self._what = what
        self._certificate_settings = settings
        self._secrets = secrets
        self._expiry = expiry
        self._trust = TrustTracker(clock)
        self._served = ServedCertificate(serve)
        self._retries = 0
        self._unusable = ""
        self._updated = ""  # the object that the current step of an iteration updates

    async def run(self) -> None:
        """Run iterations until :meth:`close`."""
        await self._iterate_until_closed()

    @property
    def certificate_expires(self) -> float | None:
        """Return when the served certificate expires, in seconds since the epoch; ``None`` if none is served."""
        return None if self._served.current is None else expires(self._served.current)

    def certificate_check(self) -> str | None:
        """Return why requests of the API server would fail because of the certificate; ``None`` if they would not."""
        if self._served.current is None:
            return self.certificate_problem
        return None if self._served.is_trusted(self._bundles()) else "the API server does not trust the certificate yet"

    async def _iterate(self) -> float | None:
        try:
            pause = await self._maintain()
        except (ApiError, Unreachable) as error:
            # No exception, because a process that exits after --max-failing-time would no longer answer requests.
            if (problem := str(error) or type(error).__name__) != self.problem:
                log.warning("Failed to update the %s; retrying: %s", self._updated, problem)
            self.problem = problem
            self._retries += 1
            return RETRY.delay(self._retries - 1)
        self.problem, self._retries = self.certificate_problem, 0
        return pause

    async def _maintain(self) -> float:
        if not (self._secrets.synced and self._synced()):
            return 1.0  # the stores also wake the loop
        # 1. Which CAs do all API servers trust by now?
        registered = self._bundles()
        self._trust.observe(registered)
        # 2. Issue, renew or rotate certificates.
        self._updated = f"Secret {self._certificate_settings.namespace}/{self._certificate_settings.secret}"
        found = self._secrets.get(f"{self._certificate_settings.namespace}/{self._certificate_settings.secret}")
        current = self._read(found)
        if self._certificate_settings.issue:
            made = self._next(current, registered)
            if made is not None:
                where = self._certificate_settings.namespace, self._certificate_settings.secret
                if not await store_certificates(self._api, *where, found, made):
                    return WRITE_AGAIN_AFTER  # another replica was faster; its change arrives over the watch
                current, self.certificate_problem = made, ""
        if current is None:
            return CHECK_PERIOD
        # 3. Serve the certificate as soon as it is trusted.
        lifetimes = self._certificate_settings.lifetimes
        waiting = not self._served.offer(current, registered, self._trust, lifetimes.propagation)
        self._expiry(expires(self._served.current or current))
        # 4. Register as soon as requests can be answered.
        self._updated = self._what
        delay = await self._register(current, registered)
        rest = lifetimes.propagation / 4 if waiting or self._is_rotating(current) else lifetimes.certificate / 48
        return min(rest, CHECK_PERIOD, delay or CHECK_PERIOD)

    async def _failed(self, error: Exception) -> float | None:
        self.problem = str(error) or type(error).__name__
        return RETRY.maximum

    def _read(self, found: CertificateSecret | None) -> Certificates | None:
        """Return the usable certificates of the Secret; if there are none, log once why."""
        try:
            certificates = read_certificates({} if found is None else found.data)
        except InputError as error:
            reason = "it does not exist" if found is None else str(error)
            self.certificate_problem = (
                f"Secret {self._certificate_settings.namespace}/{self._certificate_settings.secret}: {reason}"
            )
            if self.certificate_problem != self._unusable and not self._certificate_settings.issue:
                log.warning("No usable serving certificate found: %s", self.certificate_problem)
            self._unusable = self.certificate_problem
            return None
        self.certificate_problem = self._unusable = ""
        return certificates

    def _next(self, current: Certificates | None, registered: tuple[bytes, ...]) -> Certificates | None:
        return next_certificates(
            current,
            registered=registered,
            trusted_for=self._trust.seconds,
            names=self._certificate_settings.names,
            now=self._clock.now(),
            lifetimes=self._certificate_settings.lifetimes,
        )

    def _is_rotating(self, current: Certificates) -> bool:
        return self._certificate_settings.issue and len(current.authorities) > 1

    def _bundle(self, current: Certificates, registered: tuple[bytes, ...]) -> bytes:
        """Return the ``caBundle`` to register."""
        lifetimes = self._certificate_settings.lifetimes
        return trust_bundle(current, registered, self._trust.seconds, self._clock.now(), lifetimes)

    @abstractmethod
    def _synced(self) -> bool:
        """Return whether the registered objects are known."""

    @abstractmethod
    def _bundles(self) -> tuple[bytes, ...]:
        """Return the ``caBundle`` of each registered object."""

    @abstractmethod
    async def _register(self, current: Certificates, registered: tuple[bytes, ...]) -> float | None:
        """Register the wanted objects if they differ.

        Args:
            current: the certificates in the Secret.
            registered: the result of :meth:`_bundles`.

        Returns:
            Seconds after which to call this again; ``None`` if everything is registered.

        Raises:
            ApiError: the API server refused it.
            Unreachable: there was no response.
        """
