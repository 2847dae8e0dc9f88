-- SQLite keeps an org's handoffs together from here on. PostgreSQL keeps rows as they come, and finds them by handoffs_listed as before.
SELECT 1;
