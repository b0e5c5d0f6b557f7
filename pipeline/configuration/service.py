"""The settings of the service: its address and key, plan and limits, and what is pulled."""

from datetime import timedelta

from pydantic import BaseModel, Field, SecretStr

from catalog.contract import constants
from catalog.contract.plans import PLANS
from pipeline.configuration.types import LEAST_POLL_INTERVAL_S, CommaList, Place, PlanName
from resources.service_clock import MAX_SKEW


class ServiceSettings(BaseModel):
    """What is asked of the service, and how much of it."""

    base_url: str | None = Field(
        default=None,
        description="Base address of the service, with or without `/v2`. Set it together with the "
        "key; without both, Almanac uses the embedded sandbox.",
    )
    api_key: SecretStr | None = Field(
        default=None, description="The API key. A file is safer: `ALMANAC_API_KEY_FILE`."
    )
    api_key_file: Place | None = Field(
        default=None, description="A file that contains the API key and nothing else."
    )
    plan: PlanName | None = Field(
        default=None,
        description=f"The plan of the key: {', '.join(PLANS)}. Default: what the service reports.",
    )
    rate_per_s: float | None = Field(
        default=None,
        gt=0,
        description="Requests per second for this machine. Default: as the service states, else "
        "the plan's. Machines that use one key each need a share of its rate, burst and quota.",
    )
    burst: int | None = Field(
        default=None,
        ge=1,
        description="Requests that this machine may send together. Default: as for the rate.",
    )
    monthly_quota: int | None = Field(
        default=None,
        ge=1,
        description="Requests per month for this machine. Default: what the service reports.",
    )
    reserve: float = Field(
        default=0.2,
        ge=0,
        lt=1,
        description="The part of the monthly quota that polls and backfills leave to daily pulls.",
    )
    daily_quota: int | None = Field(
        default=None,
        ge=1,
        description="Requests per month for daily pulls. Default: all that is left.",
    )
    polls_quota: int | None = Field(
        default=None,
        ge=0,
        description="Requests per month for polls. Default: all but the reserve; 0 disables them.",
    )
    backfill_quota: int | None = Field(
        default=None,
        ge=1,
        description="Requests per month for backfills. Default: everything except the reserve.",
    )
    poll_interval_s: int = Field(
        default=LEAST_POLL_INTERVAL_S,
        ge=0,
        description="The shortest time between two polls, in seconds.",
    )
    export_path: str = Field(
        default=constants.EXPORT_PATH, description="Path of the bulk export on the service."
    )
    export_interval_s: float = Field(
        default=60.0,
        ge=0,
        le=900,
        description="Seconds between two bulk exports of the key, on the whole machine: a service "
        "limits them apart from other requests. The embedded sandbox has no such limit.",
    )
    coins: CommaList = Field(
        default=(), description="Coins to pull (slugs, separated by commas). Default: all."
    )
    categories: CommaList = Field(
        default=(), description="Categories to pull (ids, separated by commas). Default: all."
    )
    max_clock_skew_days: float = Field(
        default=MAX_SKEW / timedelta(days=1),
        gt=0,
        le=36_500,
        description="A `Date` of the service further than this from the machine's clock is "
        "ignored. Raise it for a service with a set time, such as `almanac sandbox --now`.",
    )
    sandbox_seed: int = Field(
        default=1,
        description="The seed of the embedded sandbox; the same seed gives the same catalog.",
    )
