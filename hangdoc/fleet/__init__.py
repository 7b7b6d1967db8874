"""Observes many hosts: the collector runs on each host and sends its bundle back; the diagnosis runs here."""
