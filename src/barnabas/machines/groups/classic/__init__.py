"""Groups of the classic protocol, whose leader assigns: JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""
