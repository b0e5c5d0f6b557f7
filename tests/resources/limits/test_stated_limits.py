"""What a service states of a key: in the usage, in headers, and of exports."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from struct import Struct
from zlib import crc32

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.sandbox.sandbox import Sandbox
from resources.errors import Defer, QuotaUnknown
from resources.http.client import CatalogClient
from resources.http.retry import read_quota_headers
from resources.limits.allowance import (
    UNKNOWN,
    UNLIMITED,
    Allowance,
    ChargedRequest,
    Pace,
    QuotaHeaders,
    ReportedLimits,
    adopt_headers,
    answered,
    charge,
)
from resources.limits.ledger import Ledger
from resources.limits.limiter import SharedLimiter, usable_burst
from resources.request_log import SentRequest
from tests.resources.fakes import KEY
from tests.resources.limits.moved_clock import MARCH, Machine
from tests.unlimited import Unlimited

DAY = 86_400.0
WEEK = 7 * DAY
ENDS = datetime(2026, 3, 17, tzinfo=UTC)
"""The end of a period that began on another day than the first."""


def pace_of(state: Allowance) -> Pace:
    rate_per_s, burst = state.rate_per_s or 100.0, state.burst or 500
    return Pace(rate_per_s, usable_burst(rate_per_s, burst, 1.0))


def opened(path: Path, machine: Machine, *, interval_s: float = 0.0) -> SharedLimiter:
    ledger = Ledger(path, Pace(100.0, 400), pace_of=pace_of, now_ns=lambda: machine.ns)
    return SharedLimiter(
        ledger,
        clock=lambda: machine.wall,
        sleep=machine.sleep,
        export_interval_s=interval_s,
    )


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def limiter(tmp_path: Path, machine: Machine) -> SharedLimiter:
    limiter = opened(tmp_path / "key.ledger", machine, interval_s=60.0)
    limiter.on_usage(ReportedLimits(1_000, 0, ENDS))
    return limiter


def test_the_stated_pace_is_used_by_another_process_and_the_next_start(
    tmp_path: Path, machine: Machine, limiter: SharedLimiter
) -> None:
    limiter.on_stated_pace(5.0, 5)
    limiter.on_stated_pace(None, None)
    limiter.on_stated_pace(0.0, 0)
    again = opened(tmp_path / "key.ledger", machine)
    began = machine.ns
    for _ in range(11):
        again.acquire()
    assert (machine.ns - began) / 1e9 == pytest.approx(11 / 5, abs=0.01)
    state = again.ledger.peek()
    assert (state.rate_per_s, state.burst) == (5.0, 5)


def test_a_record_of_another_layout_counts_as_unknown(limiter: SharedLimiter) -> None:
    limiter.acquire()
    body = bytearray(limiter.ledger.path.read_bytes())[:-4]
    body[:4] = b"ALM2"
    limiter.ledger.path.write_bytes(bytes(body) + Struct("<I").pack(crc32(bytes(body))))
    state = limiter.ledger.peek()
    assert (state.allowed, state.used, state.spent) == (UNKNOWN, 0, (0, 0, 0))


class TestHeaders:
    def test_more_used_elsewhere_and_fewer_used_are_both_adopted_while_nothing_else_is_sent(
        self, limiter: SharedLimiter
    ) -> None:
        for remaining, used in ((700, 300), (990, 10)):
            sent = limiter.acquire()
            limiter.on_answer(sent, QuotaHeaders(1_000, remaining, ENDS, WEEK))
            assert limiter.ledger.peek().used == used

    def test_an_answer_never_leaves_more_than_it_says_less_the_newer_requests(
        self, limiter: SharedLimiter
    ) -> None:
        first = limiter.acquire()
        for _ in range(4):
            limiter.acquire()
        limiter.on_answer(first, QuotaHeaders(1_000, 900, ENDS, WEEK))
        assert limiter.left() == 900 - 4

    def test_requests_in_progress_may_not_be_counted_yet(self, limiter: SharedLimiter) -> None:
        early = [limiter.acquire() for _ in range(3)]
        last = limiter.acquire()
        # The service has received the last one first.
        limiter.on_answer(last, QuotaHeaders(1_000, 999, ENDS, WEEK))
        assert limiter.ledger.peek().used == 4
        for sent in early:
            limiter.on_answer(sent, None)

    def test_a_limit_that_resets_within_the_hour_is_that_of_a_rate(
        self, limiter: SharedLimiter
    ) -> None:
        limiter.on_answer(limiter.acquire(), QuotaHeaders(25, 24, None, 1.0))
        assert (limiter.left(), limiter.ledger.peek().allowed) == (999, 1_000)

    def test_a_stated_quota_is_adopted_where_none_was_known(self, limiter: SharedLimiter) -> None:
        with limiter.ledger.locked() as entry:
            entry.state = replace(entry.state, allowed=UNLIMITED)
        limiter.on_answer(limiter.acquire(), QuotaHeaders(40, 30, ENDS, WEEK))
        assert limiter.left() == 30

    def test_an_answer_that_is_not_counted_tells_only_the_reset(
        self, limiter: SharedLimiter
    ) -> None:
        sent = limiter.acquire()
        limiter.on_answer(sent, QuotaHeaders(1_000, 5, ENDS, DAY * 20), counted=False)
        limiter.on_rate_limited(1.0)
        assert limiter.ledger.peek().used == 0
        assert limiter.resets_in_s() == pytest.approx(DAY * 20, abs=2)

    def test_a_reset_that_is_not_believed_is_not_that_of_the_month(
        self, limiter: SharedLimiter
    ) -> None:
        for text in ("0", "1", "2026-03-01T00:00:00Z", "9999-12-31T00:00:00Z"):
            heard = read_quota_headers(
                {
                    "date": "Mon, 02 Mar 2026 00:00:00 GMT",
                    "x-ratelimit-limit": "1000",
                    "x-ratelimit-remaining": "0",
                    "x-ratelimit-reset": text,
                }
            )
            assert heard is not None
            sent = limiter.acquire()
            limiter.on_answer(sent, heard)
            assert limiter.ledger.peek().used == sent.number, text

    @given(st.integers(0, 2**32))
    def test_in_any_order_no_answer_leaves_too_much_and_a_request_alone_settles_the_count(
        self, seed: int
    ) -> None:
        """Up to six requests in progress; another machine uses the key too."""
        chance, at_service = Random(seed), 0
        waiting: list[ChargedRequest] = []
        heard: list[tuple[ChargedRequest, int]] = []

        def said(used: int) -> QuotaHeaders:
            return QuotaHeaders(10_000, 10_000 - used)

        state = Allowance(0, allowed=10_000, used=0, resets_at=2_000_000)
        for _ in range(60):
            step = chance.choice(("send", "arrive", "answer", "other"))
            if step == "send" and len(waiting) + len(heard) < 6:
                before = state.answered
                state = charge(state, "daily")
                waiting.append(ChargedRequest(state.sent, before))
            elif step == "arrive" and waiting:
                at_service += 1
                heard.append((waiting.pop(chance.randrange(len(waiting))), at_service))
            elif step == "answer" and heard:
                sent, used = heard.pop(chance.randrange(len(heard)))
                state = adopt_headers(state, said(used), sent, 0.0)
                assert state.used >= used + state.sent - sent.number
                state = answered(state)
            elif step == "other":
                at_service += 1
        for sent, used in (*heard, *((sent, at_service) for sent in waiting)):
            state = answered(adopt_headers(state, said(used), sent, 0.0))
        at_service += len(waiting) + 1
        before = state.answered
        state = charge(state, "daily")
        assert (
            adopt_headers(state, said(at_service), ChargedRequest(state.sent, before), 0.0).used
            == at_service
        )


class TestReset:
    def test_it_is_learnt_from_whichever_was_heard_last(
        self, machine: Machine, limiter: SharedLimiter
    ) -> None:
        def resets_at() -> datetime:
            return datetime.fromtimestamp(limiter.ledger.peek().resets_at, UTC)

        assert resets_at() == ENDS
        later = ENDS + timedelta(days=3)
        limiter.on_answer(
            limiter.acquire(),
            QuotaHeaders(1_000, 998, later, (later - machine.wall).total_seconds()),
        )
        assert abs(resets_at() - later) < timedelta(seconds=2)
        limiter.on_usage(ReportedLimits(1_000, 5, ENDS))
        assert resets_at() == ENDS
        assert limiter.ledger.peek().spent == (1, 0, 0), "the period is not over"
        limiter.acquire()
        limiter.on_quota_exhausted(resets_in_s=DAY)
        with pytest.raises(Defer) as deferred:
            limiter.acquire()
        assert abs(deferred.value.resume_at - machine.wall - timedelta(days=1)) < timedelta(
            seconds=2
        )

    def test_a_new_period_by_a_header_begins_a_new_count(
        self, machine: Machine, limiter: SharedLimiter
    ) -> None:
        for _ in range(3):
            limiter.acquire()
        machine.wall = ENDS - timedelta(minutes=1)
        sent = limiter.acquire()
        limiter.on_answer(sent, QuotaHeaders(1_000, 999, None, DAY * 31))
        assert (limiter.ledger.peek().used, limiter.ledger.peek().spent) == (1, (0, 0, 0))

    @pytest.mark.parametrize("reset", [None, "0", "1773705600", "2026-03-17T00:00:00Z", "soon"])
    def test_a_late_answer_of_the_month_before_uses_up_nothing_of_the_new_one(
        self, machine: Machine, limiter: SharedLimiter, reset: str | None
    ) -> None:
        machine.wall = ENDS - timedelta(seconds=1)
        late = limiter.acquire()
        machine.wall = ENDS + timedelta(seconds=1)
        with pytest.raises(QuotaUnknown):
            limiter.acquire()
        limiter.on_answer(limiter.acquire(for_usage=True), None)
        limiter.on_usage(ReportedLimits(1_000, 1, ENDS + timedelta(days=31)))
        headers = {
            "date": "Tue, 17 Mar 2026 00:00:02 GMT",
            "x-ratelimit-limit": "1000",
            "x-ratelimit-remaining": "0",
        }
        if reset is not None:
            headers["x-ratelimit-reset"] = reset
        limiter.on_answer(late, read_quota_headers(headers))
        assert limiter.left() == 999
        limiter.acquire()

    def test_a_late_429_of_the_month_before_uses_up_nothing_of_the_new_one(
        self, machine: Machine, limiter: SharedLimiter
    ) -> None:
        machine.wall = ENDS - timedelta(seconds=1)

        def answer(_: httpx.Request) -> httpx.Response:
            machine.wall = ENDS + timedelta(seconds=1)
            limiter.on_usage(ReportedLimits(1_000, 1, ENDS + timedelta(days=31)))
            return httpx.Response(
                429,
                json={"error": {"code": "quota_exceeded", "message": "Limit Exceeded"}},
                headers={"Date": "Tue, 17 Mar 2026 00:00:01 GMT", "Retry-After": "1"},
            )

        with (
            CatalogClient(
                "https://catalog.test",
                KEY,
                limiter=limiter,
                ambient=machine.ambient(),
                transport=httpx.MockTransport(answer),
            ) as client,
            pytest.raises(Defer),
        ):
            client.events_total()
        assert limiter.left() == 999
        limiter.acquire()

    @pytest.mark.parametrize(
        ("text", "left_s"),
        [
            ("2026-03-17T00:00:00Z", DAY * 15),
            ("1773705600", DAY * 15),
            ("1296000", DAY * 15),
            ("2026-03-01T00:00:00Z", None),
            ("9999-12-31T00:00:00Z", None),
            ("2026-03-17T00:00:00", None),
            ("soon", None),
            ("-1", None),
            ("9" * 40, None),
        ],
    )
    def test_every_form_of_the_header_is_read(self, text: str, left_s: float | None) -> None:
        headers = {
            "date": "Mon, 02 Mar 2026 00:00:00 GMT",
            "x-ratelimit-limit": "3000",
            "x-ratelimit-remaining": "2999",
            "x-ratelimit-reset": text,
        }
        heard = read_quota_headers(headers)
        assert heard is not None
        assert (heard.allowed, heard.remaining, heard.resets_in_s) == (3_000, 2_999, left_s)
        assert heard.reset_at == (None if left_s is None else ENDS)

    @pytest.mark.parametrize("count", ["-1", "1e3", "", "²", str(2**63), "many"])
    def test_a_count_that_is_none_is_left_out(self, count: str) -> None:
        assert read_quota_headers({"x-ratelimit-remaining": count}) is None

    def test_more_left_than_allowed_is_left_out(self) -> None:
        assert read_quota_headers({"x-ratelimit-limit": "5", "x-ratelimit-remaining": "6"}) is None


class TestExports:
    def test_the_interval_holds_in_every_process_and_holds_back_nothing_else(
        self, tmp_path: Path, machine: Machine, limiter: SharedLimiter
    ) -> None:
        other = opened(tmp_path / "key.ledger", machine, interval_s=60.0)
        limiter.acquire(for_export=True)
        began = machine.ns
        other.acquire()
        assert (machine.ns - began) / 1e9 < 1
        other.acquire(for_export=True)
        assert 60 < (machine.ns - began) / 1e9 < 62

    def test_a_service_with_the_same_interval_refuses_none(self, tmp_path: Path) -> None:
        with Sandbox(seed=1, now=MARCH, export_interval_s=0.5) as sandbox:
            seen: list[SentRequest] = []
            limiter = SharedLimiter(
                Ledger(tmp_path / "real.ledger", Pace(25.0, 100)),
                clock=lambda: MARCH,
                export_interval_s=0.5,
            )
            limiter.on_usage(ReportedLimits(1_000, 0, ENDS))
            with CatalogClient(
                sandbox.base_url, sandbox.new_key("elite"), limiter=limiter, observer=seen.append
            ) as client:
                for _ in range(2):
                    client.export(tmp_path / "export.csv", MARCH.date(), MARCH.date())
        assert [sent.status for sent in seen] == [200, 200]

    def test_its_429_holds_back_exports_alone_and_is_not_counted(
        self, tmp_path: Path, machine: Machine, limiter: SharedLimiter
    ) -> None:
        answers = [429, 200]

        def answer(request: httpx.Request) -> httpx.Response:
            if request.url.path.endswith("/export") and answers.pop(0) == 429:
                return httpx.Response(429, headers={"Retry-After": "20"})
            if request.url.path.endswith("/export"):
                return httpx.Response(
                    200, text="id,title\na,b\n", headers={"content-type": "text/csv"}
                )
            return httpx.Response(200, json={"data": [], "meta": {"total": 0, "cursor": None}})

        with CatalogClient(
            "https://catalog.test",
            KEY,
            limiter=limiter,
            ambient=machine.ambient(),
            transport=httpx.MockTransport(answer),
        ) as client:
            began = machine.ns
            client.export(tmp_path / "export.csv")
            assert 20 <= (machine.ns - began) / 1e9 < 25, "its Retry-After, not the interval"
            began = machine.ns
            client.events_total()
            assert (machine.ns - began) / 1e9 < 1
        assert limiter.ledger.peek().used == 2

    def test_an_export_that_is_not_found_starts_no_interval(
        self, machine: Machine, limiter: SharedLimiter
    ) -> None:
        limiter.acquire(for_export=True)
        began = machine.ns
        limiter.on_no_export()
        limiter.acquire(for_export=True)
        assert (machine.ns - began) / 1e9 < 5
        limiter.acquire(for_export=True)
        assert (machine.ns - began) / 1e9 >= 60

    @pytest.mark.parametrize(("retry_after_s", "held_s"), [(None, 1.0), (1.0, 1.0), (9.0, 9.0)])
    def test_a_429_that_may_be_for_the_rate_holds_back_all_and_keeps_the_interval(
        self, machine: Machine, limiter: SharedLimiter, retry_after_s: float | None, held_s: float
    ) -> None:
        began = machine.ns
        limiter.acquire(for_export=True)
        sent_s = (machine.ns - began) / 1e9
        limiter.on_export_limited(retry_after_s)
        limiter.acquire()
        waited_s = (machine.ns - began) / 1e9
        assert held_s <= waited_s - sent_s < held_s + 5
        limiter.acquire(for_export=True)
        assert 60 <= (machine.ns - began) / 1e9 - sent_s < 62
        assert limiter.ledger.peek().used == 2


def test_a_used_up_quota_without_retry_after_resumes_at_the_reset_heard_before(
    machine: Machine, limiter: SharedLimiter
) -> None:
    body = {"error": {"code": "quota_exceeded", "message": "Limit Exceeded"}}
    with (
        CatalogClient(
            "https://catalog.test",
            KEY,
            limiter=limiter,
            ambient=machine.ambient(),
            transport=httpx.MockTransport(lambda _: httpx.Response(429, json=body)),
        ) as client,
        pytest.raises(Defer) as deferred,
    ):
        client.events_total()
    assert abs(deferred.value.resume_at - ENDS) < timedelta(seconds=2)


def test_an_observer_is_told_what_headers_say_and_what_a_failed_request_is_called() -> None:
    seen: list[SentRequest] = []
    month = {
        "Date": "Mon, 02 Mar 2026 00:00:00 GMT",
        "X-RateLimit-Limit": "3000",
        "X-RateLimit-Remaining": "2999",
        "X-RateLimit-Reset": "2026-03-17T00:00:00Z",
    }
    failed = {"error": {"code": "invalid_request", "message": "no", "requestId": f"7f3a {KEY}"}}
    answers = [
        httpx.Response(400, json=failed, headers=month),
        httpx.Response(200, json={"data": [], "requestId": "no error"}, headers=month),
    ]
    with CatalogClient(
        "https://catalog.test",
        KEY,
        limiter=Unlimited(),
        observer=seen.append,
        transport=httpx.MockTransport(lambda _: answers.pop(0)),
    ) as client:
        with pytest.raises(Exception, match="400"):
            client.events_total()
        client.events_total()
    assert [sent.request_id for sent in seen] == ["7f3a [API key removed]", None]
    assert {sent.quota for sent in seen} == {QuotaHeaders(3_000, 2_999, ENDS, DAY * 15)}
