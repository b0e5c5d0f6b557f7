"""Our servers beside a bare handler and Datasette, and the limiter of our client."""
