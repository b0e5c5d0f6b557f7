"""The settings: the one module that reads the environment (and `.env`, and secret files)."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Every setting, each with the prefix `ALMANAC_`."""

    model_config = SettingsConfigDict(env_prefix="ALMANAC_", env_file=".env", extra="ignore")

    home: Path = Field(
        default=Path("data"), description="Where everything lives: landing, lake, warehouse, state."
    )

    @property
    def service_dir(self) -> Path:
        """Where `almanac sandbox` and `almanac serve` keep keys, endpoints and deliveries."""
        return self.home / "state" / "service"


def read_settings() -> Settings:
    return Settings()
