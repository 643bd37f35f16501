package ctl

import (
	"strings"
)

// propertyKinds say how the values of properties are read, by the settings' names in unit
// files (systemd.resource-control(5), systemd.exec(5), systemd.kill(5), systemd.service(5),
// systemd.unit(5)).
var propertyKinds = []struct {
	conv  convert
	names string
}{
	{asBool, `CPUAccounting MemoryAccounting IOAccounting TasksAccounting IPAccounting BlockIOAccounting
		IgnoreSIGPIPE TTYVHangup TTYReset TTYVTDisallocate PrivateTmp PrivateDevices PrivateNetwork PrivateUsers PrivateMounts PrivateIPC
		NoNewPrivileges SyslogLevelPrefix MemoryDenyWriteExecute RestrictRealtime DynamicUser RemoveIPC ProtectKernelTunables
		ProtectKernelModules ProtectKernelLogs ProtectClock ProtectControlGroups MountAPIVFS CPUSchedulingResetOnFork LockPersonality
		ProtectHostname RestrictSUIDSGID SendSIGHUP SendSIGKILL PermissionsStartOnly RootDirectoryStartOnly RemainAfterExit GuessMainPID
		StopWhenUnneeded RefuseManualStart RefuseManualStop AllowIsolate IgnoreOnIsolate DefaultDependencies`},
	{asText, `DevicePolicy Slice ManagedOOMSwap ManagedOOMMemoryPressure ManagedOOMPreference
		User Group UtmpIdentifier UtmpMode PAMName TTYPath WorkingDirectory RootDirectory SyslogIdentifier ProtectSystem ProtectHome
		SELinuxContext RootImage RootVerity RuntimeDirectoryPreserve Personality KeyringMode ProtectProc ProcSubset NetworkNamespacePath
		IPCNamespacePath LogNamespace KillMode PIDFile Type ExitType Restart RestartMode BusName NotifyAccess OOMPolicy
		TimeoutStartFailureMode TimeoutStopFailureMode Description SourcePath OnFailureJobMode JobTimeoutAction JobTimeoutRebootArgument
		StartLimitAction FailureAction SuccessAction RebootArgument CollectMode`},
	{asWords, `ReadWritePaths ReadOnlyPaths InaccessiblePaths ExecPaths NoExecPaths ExecSearchPath ReadWriteDirectories ReadOnlyDirectories
		InaccessibleDirectories SupplementaryGroups RuntimeDirectory StateDirectory CacheDirectory LogsDirectory ConfigurationDirectory
		Environment UnsetEnvironment PassEnvironment SystemCallArchitectures DisableControllers Documentation RequiresMountsFor
		Requires Requisite Wants BindsTo PartOf Upholds Conflicts Before After OnFailure OnSuccess PropagatesReloadTo ReloadPropagatedFrom
		PropagatesStopTo StopPropagatedFrom JoinsNamespaceOf`},
	{asSpan, `RestartSec TimeoutStartSec TimeoutStopSec TimeoutAbortSec RuntimeMaxSec RuntimeRandomizedExtraSec WatchdogSec LogRateLimitIntervalSec
		JobTimeoutSec JobRunningTimeoutSec StartLimitIntervalSec CPUQuotaPeriodSec`},
	{asBothTimeouts, `TimeoutSec`},
	{asNanoSpan, `TimerSlackNSec`},
	{asMode, `UMask RuntimeDirectoryMode StateDirectoryMode CacheDirectoryMode LogsDirectoryMode ConfigurationDirectoryMode`},
	{asUint32, `LogRateLimitBurst TTYRows TTYColumns FileDescriptorStoreMax StartLimitBurst RestartSteps`},
	{asUint64, `CPUShares StartupCPUShares BlockIOWeight StartupBlockIOWeight`},
	{asInt32, `OOMScoreAdjust Nice CPUSchedulingPriority IOSchedulingPriority SuccessActionExitStatus FailureActionExitStatus`},
	{asSignal, `KillSignal RestartKillSignal FinalKillSignal WatchdogSignal`},
	{asLimit, `MemoryMin MemoryLow DefaultMemoryMin DefaultMemoryLow MemoryHigh MemoryMax MemorySwapMax MemoryZSwapMax MemoryLimit`},
	{asTasks, `TasksMax`},
	{asWeight, `CPUWeight StartupCPUWeight IOWeight StartupIOWeight`},
	{asQuota, `CPUQuota`},
	{asRlimit, `LimitCPU LimitFSIZE LimitDATA LimitSTACK LimitCORE LimitRSS LimitNOFILE LimitAS LimitNPROC LimitMEMLOCK LimitLOCKS
		LimitSIGPENDING LimitMSGQUEUE LimitNICE LimitRTPRIO LimitRTTIME`},
	{asExec, `ExecCondition ExecStartPre ExecStart ExecStartPost ExecReload ExecStop ExecStopPost`},
	{asEnvironmentFile, `EnvironmentFile`},
	{asPathText, `DeviceAllow`},
	{asTemporary, `TemporaryFileSystem`},
	{asBindPaths, `BindPaths BindReadOnlyPaths`},
	{asExitStatuses, `SuccessExitStatus RestartPreventExitStatus RestartForceExitStatus`},
	{asPathNumber(bandwidth), `IOReadBandwidthMax IOWriteBandwidthMax IOReadIOPSMax IOWriteIOPSMax`},
	{asPathNumber(weightNumber), `IODeviceWeight`},
	{asLatency, `IODeviceLatencyTargetSec`},
	{asAllowList, `SystemCallFilter RestrictAddressFamilies RestrictFileSystems`},
	{asCapabilities, `CapabilityBoundingSet AmbientCapabilities`},
	{asNamespaces, `RestrictNamespaces`},
	{asCPUSet, `AllowedCPUs StartupAllowedCPUs AllowedMemoryNodes StartupAllowedMemoryNodes CPUAffinity NUMAMask`},
	{asAddresses, `IPAddressAllow IPAddressDeny`},
	{asStream, `StandardInput StandardOutput StandardError`},
	{asWord("other", "fifo", "rr", "batch", "iso", "idle"), `CPUSchedulingPolicy`},
	{asWord("none", "realtime", "best-effort", "idle"), `IOSchedulingClass`},
	{asWord("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"), `SyslogLevel LogLevelMax`},
	{asWord("kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp"), `SyslogFacility`},
	{asDelegate, `Delegate`},
}

// converterOf finds how a property's value is read, nil where it is not known.
func converterOf(name string) convert {
	if strings.HasPrefix(name, "Condition") || strings.HasPrefix(name, "Assert") {
		return asCondition
	}
	for _, kind := range propertyKinds {
		for known := range strings.FieldsSeq(kind.names) {
			if known == name {
				return kind.conv
			}
		}
	}
	return nil
}

func propertyNames() []string {
	var names []string
	for _, kind := range propertyKinds {
		names = append(names, strings.Fields(kind.names)...)
	}
	return names
}
