"""Choose: degrees, partition, schedule. Nothing outside imports a solver object from here."""
