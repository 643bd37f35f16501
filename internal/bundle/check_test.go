package bundle

import (
	"errors"
	"strings"
	"testing"
)

const webText = "[Service]\nExecStart=/usr/bin/web\n[Install]\nWantedBy=multi-user.target\n"

// web is a small bundle of one service with one file.
func web() Package {
	content := []byte("port=80\n")
	return Package{
		Bundle: Bundle{
			Format: Format, Workload: "web",
			Units:  []Unit{{Name: "web.service", Text: webText}},
			Files:  []File{{Path: "/etc/ctrl-files/web.conf", SHA256: Sum(content), Mode: 0o644}},
			Enable: []string{"web.service"}, Start: []string{"web.service"},
		},
		Blobs: map[string][]byte{Sum(content): content},
	}
}

func TestCheck(t *testing.T) {
	unit := func(name, text string) func(*Package) {
		return func(p *Package) { p.Bundle.Units = append(p.Bundle.Units, Unit{Name: name, Text: text}) }
	}
	file := func(change func(*File)) func(*Package) {
		return func(p *Package) { change(&p.Bundle.Files[0]) }
	}
	tests := map[string]struct {
		change func(*Package)
		want   string
	}{
		"good":               {func(*Package) {}, ""},
		"format":             {func(p *Package) { p.Bundle.Format = 2 }, "update ctrl-agent"},
		"no workload":        {func(p *Package) { p.Bundle.Workload = "" }, "workload name"},
		"workload escapes":   {func(p *Package) { p.Bundle.Workload = "../x" }, "workload name"},
		"workload too long":  {func(p *Package) { p.Bundle.Workload = strings.Repeat("x", 64) }, "workload name"},
		"unit twice":         {unit("web.service", webText), "twice"},
		"unit escapes":       {unit("../a.service", webText), "contains '/'"},
		"no unit":            {unit("web.conf", webText), "unit type"},
		"device":             {unit("a.device", webText), "not made from a file"},
		"the agent":          {unit("ctrl-agent.service", webText), "belongs to ctrl"},
		"empty":              {unit("a.service", " \n"), "masked"},
		"only a comment":     {unit("a.service", "# x\n"), "no [Section]"},
		"NUL":                {unit("a.service", "[Unit]\nA=\x00\n"), "a.service:2: contains a NUL"},
		"CR":                 {unit("a.service", "[Unit]\nDescription=a\r[Service]\n"), "a.service:2: contains a carriage return"},
		"too large":          {unit("a.service", "[Unit]\n"+strings.Repeat("#\n", 1<<20)), "may have"},
		"swallows the mark":  {unit("a.service", "[Unit]\nDescription=a \\"), "nothing follows"},
		"brings a mark":      {unit("a.service", "[Unit]\n[X-Ctrl]\nWorkload=db\n"), "a.service:2: the section [X-Ctrl]"},
		"drop-in escapes":    {func(p *Package) { p.Bundle.Units[0].DropIns = []DropIn{{"../x.conf", "[Unit]\n"}} }, "no name of a drop-in"},
		"drop-in hidden":     {func(p *Package) { p.Bundle.Units[0].DropIns = []DropIn{{".x.conf", "[Unit]\n"}} }, "no name of a drop-in"},
		"drop-in twice":      {func(p *Package) { p.Bundle.Units[0].DropIns = []DropIn{{"x.conf", "[Unit]\n"}, {"x.conf", "[Unit]\n"}} }, "twice"},
		"drop-in of ours":    {func(p *Package) { p.Bundle.Units[0].DropIns = []DropIn{{filesDropIn, "[Unit]\n"}} }, "take another"},
		"drop-in's text":     {func(p *Package) { p.Bundle.Units[0].DropIns = []DropIn{{"x.conf", "A=b\n"}} }, "web.service.d/x.conf:1: A= stands before"},
		"foreign with text":  {func(p *Package) { p.Bundle.Units[0].Foreign = true }, "drop-ins only"},
		"file escapes":       {file(func(f *File) { f.Path = "/etc/ctrl-files/../passwd" }), "no path"},
		"file relative":      {file(func(f *File) { f.Path = "etc/x" }), "no path"},
		"file with colon":    {file(func(f *File) { f.Path = "/etc/a:b" }), "no path"},
		"file with specifer": {file(func(f *File) { f.Path = "/etc/%h" }), "no path"},
		"setuid":             {file(func(f *File) { f.Mode = 0o4755 }), "beyond 0777"},
		"digest":             {file(func(f *File) { f.SHA256 = "../../x" }), "no SHA-256"},
		"owner":              {file(func(f *File) { f.Owner = "a:b" }), "accounts"},
		"reload when bound":  {file(func(f *File) { f.OnChange = ChangeReload }), "needs write"},
		"unknown change":     {file(func(f *File) { f.OnChange = "later" }), "one of restart"},
		"file of no service": {file(func(f *File) { f.Units = []string{"db.service"} }), "no service of this bundle"},
		"file in file": {func(p *Package) {
			f := p.Bundle.Files[0]
			f.Path += "/x"
			p.Bundle.Files = append(p.Bundle.Files, f)
		}, "a directory for"},
		"file twice":       {func(p *Package) { p.Bundle.Files = append(p.Bundle.Files, p.Bundle.Files[0]) }, "twice"},
		"content missing":  {func(p *Package) { p.Blobs = nil }, "not in the package"},
		"content wrong":    {func(p *Package) { p.Blobs[p.Bundle.Files[0].SHA256] = []byte("x") }, "does not have the digest"},
		"content too many": {func(p *Package) { p.Blobs[Sum(nil)] = nil }, "no file of its bundle"},
		"start unknown":    {func(p *Package) { p.Bundle.Start = []string{"db.service"} }, "no unit of this bundle"},
		"start template":   {func(p *Package) { p.Bundle.Start = []string{"w@.service"} }, "needs an instance"},
		"enable template": {func(p *Package) {
			p.Bundle.Units[0].Name, p.Bundle.Files[0].Units = "web@.service", nil
			p.Bundle.Start, p.Bundle.Enable = nil, []string{"web@.service"}
		}, "needs an instance"},
		"enable instance": {func(p *Package) {
			p.Bundle.Units[0].Name = "web@.service"
			p.Bundle.Start, p.Bundle.Enable = []string{"web@1.service"}, []string{"web@1.service", "web@2.service"}
		}, ""},
		"enable nothing": {func(p *Package) { p.Bundle.Units[0].Text = "[Service]\nExecStart=/a\n" }, "no [Install]"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := web()
			test.change(&p)
			_, err := DecodePackage(p.Encode())
			var refusal *Refusal
			switch {
			case test.want == "" && err != nil:
				t.Fatal(err)
			case test.want != "" && (!errors.As(err, &refusal) || refusal.Code != CodeInvalid || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestEncodeIsTheSameForTheSame(t *testing.T) {
	a, b := web(), web()
	a.Bundle.Units = append(a.Bundle.Units, Unit{Name: "a.timer", Text: "[Timer]\nOnBootSec=1\n", DropIns: []DropIn{{"b.conf", "[Unit]\n"}, {"a.conf", "[Unit]\n"}}})
	b.Bundle.Units = []Unit{{Name: "a.timer", Text: "[Timer]\nOnBootSec=1\n", DropIns: []DropIn{{"a.conf", "[Unit]\n"}, {"b.conf", "[Unit]\n"}}}, b.Bundle.Units[0]}
	b.Bundle.Start = []string{"web.service", "web.service"}
	b.Bundle.Files[0].Owner, b.Bundle.Files[0].OnChange = "root", ChangeRestart
	if string(a.Encode()) != string(b.Encode()) || a.Bundle.Digest() != b.Bundle.Digest() {
		t.Errorf("%s\n%s", a.Encode(), b.Encode())
	}
	back, err := DecodePackage(a.Encode())
	if err != nil || string(back.Encode()) != string(a.Encode()) {
		t.Errorf("read back: %v", err)
	}
	a.Bundle.Files[0].Mode = 0o600
	if a.Bundle.Digest() == b.Bundle.Digest() {
		t.Error("another mode has the same digest")
	}
}

func TestDecodeIsStrict(t *testing.T) {
	for text, want := range map[string]string{
		`{"bundle":{"format":1,"workload":"web","units":[],"color":1}}`: "color",
		`{"bundle":{"format":1,"workload":"web","units":[]}} x`:         "more than one",
		`{`: "cannot read", ``: "cannot read", `[]`: "cannot read",
	} {
		if _, err := DecodePackage([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := DecodePackage(make([]byte, MaxPackage+1)); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("too large: %v", err)
	}
	for text, ok := range map[string]bool{
		`{"workload":"web","options":{"noWait":true}}`: true, `{"workload":"web","option":{}}`: false, `{"workload":"../x"}`: false,
	} {
		if _, err := DecodeRequest(text); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func FuzzDecodePackage(f *testing.F) {
	f.Add(web().Encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := DecodePackage(data)
		if err != nil {
			return
		}
		again, err := DecodePackage(p.Encode())
		if err != nil || string(again.Encode()) != string(p.Encode()) {
			t.Fatalf("%v: not stable: %q", err, data)
		}
	})
}
