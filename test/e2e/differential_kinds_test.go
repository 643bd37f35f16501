package e2e

import (
	"strings"

	"example.org/ctrl/internal/unit"
)

// kind is a unit in a certain state. Each verb gets units of its own of every kind, made
// equal on both nodes: {} in the texts stands for the name that is this verb's.
type kind struct {
	name string
	// typed is what is typed; "" is the unit. More than one unit: separated by blanks.
	typed string
	unit  string // "" is {}.service
	// files of vendors, by their names; a text that begins with "-> " is a link to what follows.
	files string // the text of unit itself, the usual case
	more  map[string]string
	// state is what the unit is brought to before the verb: active state and sub state.
	state string
	// run is a command that makes it, where no file does.
	run string
	// Then, one after the other, in bulk for all units:
	stop    bool              // a stop job is queued, and hangs
	freeze  bool              // its processes are frozen
	after   map[string]string // files that are written now, "" removes one
	stateAt string            // what it is after that
	asFile  bool              // also for verbs that change unit files
	noRun   bool              // not for verbs that act on what runs
	jobs    bool              // for verbs that make jobs only: others have nothing that is special with it
}

const (
	vendor = "/usr/lib/systemd/system/"
	admin  = "/etc/systemd/system/"
	sleep  = "[Service]\nExecStart=/bin/sleep infinity\n"
	reload = sleep + "ExecReload=/bin/true\n"
	once   = "[Service]\nType=oneshot\nExecStart=/bin/true\n"
	keeps  = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n"
	fails  = "[Service]\nType=oneshot\nExecStart=/bin/false\n"
	wanted = "[Install]\nWantedBy=multi-user.target\n"
	deaf   = "[Service]\nExecStart=/bin/sh -c 'trap \"\" TERM; while :; do sleep 1000; done'\nTimeoutStopSec=infinity\n"
)

var kinds = []kind{
	{name: "off", files: reload, asFile: true},
	{name: "on", files: reload, state: "active running"},
	{name: "unreloadable", files: sleep, state: "active running", jobs: true},
	{name: "badreload", files: sleep + "ExecReload=/bin/false\n", state: "active running", jobs: true},
	{name: "oneshot", files: once},
	{name: "oneshoton", files: keeps, state: "active exited"},
	{name: "notify", files: "[Service]\nType=notify\nNotifyAccess=all\nExecStart=/bin/sh -c 'systemd-notify --ready; exec sleep infinity'\n", jobs: true},
	{name: "forking", files: "[Service]\nType=forking\nExecStart=/bin/sh -c 'sleep infinity & exit 0'\n", jobs: true},
	{name: "failing", files: fails, jobs: true},
	{name: "failed", files: fails, state: "failed failed"},
	{name: "dies", files: "[Service]\nExecStart=/bin/false\n", jobs: true},
	{name: "nobinary", files: "[Service]\nType=exec\nExecStart=/bin/nothing-like-this\n", jobs: true},
	{name: "limited", files: "[Unit]\nStartLimitBurst=1\nStartLimitIntervalSec=1h\n" + fails, state: "failed failed"},
	{name: "restarting", files: "[Service]\nExecStart=/bin/false\nRestart=always\nRestartSec=1h\n", state: "activating auto-restart"},
	{name: "badsetting", files: "[Service]\nType=simple\n", asFile: true},
	{name: "garbage", files: "this is no unit file\n", asFile: true},
	{name: "masked", more: map[string]string{admin + "{}.service": "-> /dev/null", vendor + "{}.service": reload}, asFile: true},
	{name: "maskedrun", more: map[string]string{"/run/systemd/system/{}.service": "-> /dev/null", vendor + "{}.service": reload}, asFile: true},
	{name: "maskedon", files: reload, state: "active running", after: map[string]string{admin + "{}.service": "-> /dev/null"}},
	{name: "missing", asFile: true},
	{name: "gone", files: reload, state: "active running", after: map[string]string{vendor + "{}.service": ""}},
	{name: "changed", files: reload, state: "active running", after: map[string]string{vendor + "{}.service": reload + "# changed\n"}},
	{name: "needsmissing", files: "[Unit]\nRequires=nothing-like-this.service\nAfter=nothing-like-this.service\n" + keeps, jobs: true},
	{name: "wantsmissing", files: "[Unit]\nWants=nothing-like-this.service\n" + keeps, jobs: true},
	{name: "needsfailing", files: "[Unit]\nRequires={}_dep.service\nAfter={}_dep.service\n" + keeps, more: map[string]string{vendor + "{}_dep.service": fails}, jobs: true},
	{name: "bound", files: "[Unit]\nBindsTo={}_dep.service\nAfter={}_dep.service\n" + reload, more: map[string]string{vendor + "{}_dep.service": reload}, state: "active running"},
	{name: "condition", files: "[Unit]\nConditionPathExists=/nowhere\n" + keeps, jobs: true},
	{name: "assert", files: "[Unit]\nAssertPathExists=/nowhere\n" + keeps, jobs: true},
	{name: "execcondition", files: keeps + "ExecCondition=/bin/false\n", jobs: true},
	{name: "nostart", files: "[Unit]\nRefuseManualStart=yes\n" + reload},
	{name: "nostop", files: "[Unit]\nRefuseManualStop=yes\n" + reload, state: "active running", jobs: true},
	{name: "badstop", files: keeps + "ExecStop=/bin/false\n", state: "active exited", jobs: true},
	{name: "template", unit: "{}@.service", files: reload, asFile: true},
	{name: "instance", unit: "{}@one.service", more: map[string]string{vendor + "{}@.service": reload}, asFile: true},
	{name: "instanceon", unit: "{}@one.service", more: map[string]string{vendor + "{}@.service": reload}, state: "active running"},
	{name: "noinstance", unit: "{}@one.service"},
	{name: "alias", typed: "{}_also.service", files: reload, more: map[string]string{admin + "{}_also.service": "-> " + vendor + "{}.service"}, asFile: true},
	{name: "aliason", typed: "{}_also.service", files: reload, more: map[string]string{admin + "{}_also.service": "-> " + vendor + "{}.service"}, state: "active running"},
	{name: "aliasonce", typed: "{}_also.service", files: "[Unit]\nConditionPathExists=/nowhere\n" + once, more: map[string]string{admin + "{}_also.service": "-> " + vendor + "{}.service"}},
	{name: "primary", files: reload + "[Install]\nAlias={}_also.service\n", more: map[string]string{admin + "{}_also.service": "-> " + vendor + "{}.service"}, state: "active running", asFile: true},
	{name: "odd", unit: `odd\x2d{}@A:b_c\x2fd.service`, more: map[string]string{vendor + `odd\x2d{}@.service`: reload}, state: "active running", asFile: true},
	{name: "nosuffix", typed: "{}", files: reload, state: "active running", asFile: true},
	{name: "pathtyped", typed: "/run/{}", unit: "run-{}.mount", files: "[Mount]\nWhat=tmpfs\nType=tmpfs\nWhere=/run/{}\n"},
	{name: "socket", unit: "{}.socket", files: "[Socket]\nListenStream=/run/{}.sock\n", more: map[string]string{vendor + "{}.service": reload}, state: "active listening"},
	{name: "socketoff", unit: "{}.socket", files: "[Socket]\nListenStream=/run/{}.sock\n[Install]\nWantedBy=sockets.target\n", more: map[string]string{vendor + "{}.service": reload}, asFile: true},
	{name: "timer", unit: "{}.timer", files: "[Timer]\nOnActiveSec=1h\n", more: map[string]string{vendor + "{}.service": once}, state: "active waiting"},
	{name: "path", unit: "{}.path", files: "[Path]\nPathExists=/nowhere/{}\n", more: map[string]string{vendor + "{}.service": once}, state: "active waiting"},
	{name: "mount", unit: "run-{}.mount", files: "[Mount]\nWhat=tmpfs\nType=tmpfs\nWhere=/run/{}\n", state: "active mounted"},
	{name: "badmount", unit: "run-{}.mount", files: "[Mount]\nWhat=/nowhere\nWhere=/run/{}\n", jobs: true},
	{name: "slice", unit: "{}.slice", files: "[Slice]\nTasksMax=100\n", state: "active active"},
	{name: "target", unit: "{}.target", files: "[Unit]\nDescription=A target\n", state: "active active", asFile: true},
	{name: "generated", unit: generatedPrefix + "{}.service", more: map[string]string{"/etc/generate/" + generatedPrefix + "{}.service": reload}, state: "active running", asFile: true},
	{name: "transient", run: "systemd-run --quiet --unit={}.service sleep infinity", state: "active running"},
	{name: "scope", unit: "{}.scope", run: "systemd-run --quiet --scope --unit={}.scope sleep infinity &", state: "active running"},
	{name: "hangstart", files: "[Service]\nType=oneshot\nExecStart=/bin/sleep infinity\nTimeoutStartSec=infinity\n", state: "activating start"},
	{name: "hangstop", files: deaf, state: "active running", stop: true, stateAt: "deactivating stop-sigterm"},
	{name: "jobtimeout", files: "[Unit]\nJobTimeoutSec=2s\n[Service]\nType=oneshot\nExecStart=/bin/sleep infinity\n", jobs: true},
	{name: "frozen", files: reload, state: "active running", freeze: true},
	{name: "enabled", files: reload + wanted, more: map[string]string{admin + "multi-user.target.wants/{}.service": "-> " + vendor + "{}.service"}, asFile: true, noRun: true},
	{name: "enabledrun", files: reload + wanted, more: map[string]string{"/run/systemd/system/multi-user.target.wants/{}.service": "-> " + vendor + "{}.service"}, asFile: true, noRun: true},
	{name: "disabled", files: reload + wanted, asFile: true, noRun: true},
	{name: "also", files: reload + "[Install]\nAlso={}_dep.service\n", more: map[string]string{vendor + "{}_dep.service": reload + wanted}, asFile: true, noRun: true},
	{name: "linked", more: map[string]string{"/opt/{}.service": reload + wanted, admin + "{}.service": "-> /opt/{}.service"}, asFile: true, noRun: true},
	{name: "byadmin", more: map[string]string{admin + "{}.service": reload + wanted}, asFile: true, noRun: true},
	{name: "bypath", typed: "/opt/{}.service", more: map[string]string{"/opt/{}.service": reload + wanted}, asFile: true, noRun: true},
	{name: "defaultinstance", unit: "{}@.service", files: reload + wanted + "DefaultInstance=one\n", asFile: true, noRun: true},
	{name: "dangling", more: map[string]string{admin + "{}.service": "-> " + vendor + "nothing-like-this.service"}, asFile: true, noRun: true},
	{name: "dropinonly", more: map[string]string{admin + "{}.service.d/a.conf": sleep}, asFile: true},
	{name: "badname", typed: "{}@@.service", asFile: true},
	{name: "longname", typed: "{}" + strings.Repeat("x", 250), asFile: true},
	{name: "blank", typed: "{} {}_2", asFile: true},
	{name: "glob", typed: "{}_g*", files: reload, more: map[string]string{vendor + "{}_g1.service": reload, vendor + "{}_g2.service": reload}, state: "active running"},
	{name: "globmissing", typed: "{}_g*", asFile: true},
}

// generatedPrefix is what the generator of these tests makes units of.
const generatedPrefix = "generated_"

// copyOf is a kind's unit for one verb.
type copyOf struct {
	kind
	verb string
}

func (c copyOf) base() string { return c.name + "_" + strings.ReplaceAll(c.verb, "-", "") }

func (c copyOf) fill(s string) string { return strings.ReplaceAll(s, "{}", c.base()) }

// unitName is the unit whose state is compared.
func (c copyOf) unitName() string {
	if c.unit == "" {
		return c.fill("{}.service")
	}
	return c.fill(c.unit)
}

// arg is what is typed.
func (c copyOf) arg() string {
	if c.typed != "" {
		return c.fill(c.typed)
	}
	return c.unitName()
}

// written are all files of the unit.
func (c copyOf) written() map[string]string {
	files := make(map[string]string)
	if c.files != "" {
		files[vendor+c.unitName()] = c.fill(c.files)
	}
	for path, text := range c.more {
		files[c.fill(path)] = c.fill(text)
	}
	return files
}

// watched are all units whose states are compared: it, and those beside it.
func (c copyOf) watched() []string {
	names := []string{c.unitName()}
	for path := range c.written() {
		name := path[strings.LastIndexByte(path, '/')+1:]
		if unit.CheckInstance(name) == nil && name != names[0] {
			names = append(names, name)
		}
	}
	return names
}
