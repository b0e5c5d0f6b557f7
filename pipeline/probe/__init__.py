"""The probe: asks a service what the specification leaves open."""
