"""Plans: what a run would be and cost, and what it lacks, stored until it is started."""
