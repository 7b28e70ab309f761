"""What several tests of this folder share, a file for each topic: simulated nodes, their network and disk, clients."""
