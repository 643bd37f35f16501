package main

import (
	"fmt"
	"strings"

	"example.org/ctrl/internal/config"
)

// man is the manual page of a daemon's configuration file.
func man(daemon string) string {
	file := daemon + ".conf"
	var b strings.Builder
	fmt.Fprintf(&b, ".TH CTRL-%s.CONF 5\n", strings.ToUpper(daemon))
	fmt.Fprintf(&b, ".SH NAME\nctrl-%s.conf \\- configuration of ctrl-%s\n", daemon, daemon)
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.nf\n/usr/lib/ctrl/%s\n/etc/ctrl/%s\n/usr/lib/ctrl/%s.d/*.conf\n/etc/ctrl/%s.d/*.conf\n.fi\n", file, file, file, file)
	b.WriteString(".SH DESCRIPTION\n")
	for part := range strings.SplitSeq(rules(), "\n\n") {
		fmt.Fprintf(&b, ".PP\n%s\n", roff(strings.Join(strings.Fields(part), " ")))
	}
	for _, s := range sectionsOf(file) {
		fmt.Fprintf(&b, ".SH SECTION [%s]\n", s.Title)
		for _, k := range s.Keys {
			manKey(&b, k)
		}
	}
	fmt.Fprintf(&b, ".SH SEE ALSO\n.BR ctrl-%s (8),\n.BR ctl (1),\n.BR systemd.time (7)\n", daemon)
	return b.String()
}

func manKey(b *strings.Builder, k config.Key) {
	fmt.Fprintf(b, ".TP\n.B %s=\n%s%s", k.Name, roff(k.Doc), roff(later(k)))
	switch {
	case k.Default != "":
		fmt.Fprintf(b, " Default: %s.", roff(k.Default))
	case k.Example != "":
		fmt.Fprintf(b, " Example: %s.", roff(k.Example))
	}
	fmt.Fprintf(b, " Value: %s.", roff(k.Type))
	if !k.Reload {
		b.WriteString(" A change takes effect at the next start.")
	}
	b.WriteByte('\n')
}

// rules is the part of the page for people that both manual pages need, without its marks.
func rules() string {
	_, text, _ := strings.Cut(intro, "## How the files are read\n\n")
	text, _, _ = strings.Cut(text, "\n## ")
	return strings.TrimSpace(strings.NewReplacer("`", "", "**", "").Replace(text))
}

// roff writes text so that nothing in it is a request (groff(7)).
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`).Replace(s)
	if strings.HasPrefix(s, ".") {
		s = `\&` + s
	}
	return s
}
