-- The operator looks at failed log-ins of all orgs, the latest.
CREATE INDEX auth_failures_at ON auth_failures (at);
