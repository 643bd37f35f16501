package journal

import (
	"errors"
	"io"
	"strings"
	"testing"

	"example.org/ctrl/internal/wire"
)

func TestExportFormat(t *testing.T) {
	long := strings.Repeat("y", 200<<10)
	in := "__CURSOR=c1\n__REALTIME_TIMESTAMP=5\n__SEQNUM=1\nMESSAGE=a=b\nEMPTY=\nMESSAGE\n\x03\x00\x00\x00\x00\x00\x00\x00x\ny\n\n" +
		"\n__CURSOR=c2\nLONG=" + long + "\n\n__CURSOR=c3\nMESSAGE=half"
	x := newExportReader(strings.NewReader(in))
	e, err := x.next()
	if err != nil || e.cursor != "c1" || e.time != 5 || len(e.fields) != 3 {
		t.Fatalf("%+v, %v", e, err)
	}
	for i, want := range []string{"MESSAGE=a=b", "EMPTY=", "MESSAGE=x\ny"} {
		if got := e.fields[i].name + "=" + string(e.fields[i].value); got != want {
			t.Errorf("field %d is %q, want %q", i, got, want)
		}
	}
	if got := e.wire().Fields["MESSAGE"].Sig; got != "as" {
		t.Errorf("a field that stands twice has type %q", got)
	}
	if e, err = x.next(); err != nil || e.cursor != "c2" || string(e.fields[0].value) != long {
		t.Fatalf("%.200v, %v", e, err)
	}
	if _, err = x.next(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("an entry that breaks off gave %v", err)
	}
}

func FuzzExportFormat(f *testing.F) {
	f.Add([]byte("__CURSOR=c1\nMESSAGE\n\x03\x00\x00\x00\x00\x00\x00\x00x\ny\n\n"))
	f.Add([]byte("A\n\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, in []byte) {
		x := newExportReader(strings.NewReader(string(in)))
		for {
			e, err := x.next()
			if err != nil {
				return
			}
			if e.size() > maxEntry+maxFields*(fieldCost+64<<10) {
				t.Errorf("an entry of %d bytes", e.size())
			}
			_ = e.wire()
		}
	})
}

func TestArguments(t *testing.T) {
	for _, test := range []struct {
		q      wire.LogQuery
		user   bool
		from   where
		follow bool
		want   string
	}{
		{wire.LogQuery{AllFields: true}, false, where{}, false, "--system"},
		{wire.LogQuery{AllFields: true, Limited: true, Lines: 10, Units: []string{"a.service", "b*.service"}, Since: 1_500_000}, false, where{}, false,
			"--since=@1.500000 --lines=10 --system --unit=a.service --unit=b*.service"},
		{wire.LogQuery{AllFields: true, Limited: true, Lines: 10, Since: 1}, false, where{cursor: "s=1;i=2"}, false, "--cursor=s=1;i=2 --system"},
		{wire.LogQuery{AllFields: true, Since: 1}, true, where{since: 7}, true, "--since=@0.000007 --follow --no-tail --user"},
		{wire.LogQuery{AllFields: true, Priority: "err..info", Grep: "-x", Boot: "-1", Until: 2, Invocation: "abc"}, false, where{}, false,
			"--system --priority=err..info --grep=-x --boot=-1 --until=@0.000002 _SYSTEMD_INVOCATION_ID=abc + INVOCATION_ID=abc"},
	} {
		got := strings.Join(arguments(&test.q, test.user, test.from, test.follow), " ")
		if want := "--no-pager --quiet --output=export " + test.want; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
