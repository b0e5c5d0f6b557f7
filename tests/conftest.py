pytest_plugins = ["catalog.sandbox.pytest_plugin"]
