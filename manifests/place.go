package manifests

// On returns the manifest as it runs on a host: {{region}} and {{host}} are
// filled in wherever the format permits them. m is not changed.
func (m *Manifest) On(region, host string) *Manifest {
	values := map[string]string{"region": region, "host": host}
	placed := *m
	placed.Triggers = make([]Trigger, len(m.Triggers))
	for i, t := range m.Triggers {
		t.DurableName = Expand(t.DurableName, values)
		t.Request = Expand(t.Request, values)
		filters := make([]string, len(t.FilterSubjects))
		for j, s := range t.FilterSubjects {
			filters[j] = Expand(s, values)
		}
		t.FilterSubjects = filters
		placed.Triggers[i] = t
	}
	placed.Grants.Publish = make([]PublishGrant, len(m.Grants.Publish))
	for i, g := range m.Grants.Publish {
		g.Subject = Expand(g.Subject, values)
		placed.Grants.Publish[i] = g
	}
	placed.Grants.Request = make([]string, len(m.Grants.Request))
	for i, s := range m.Grants.Request {
		placed.Grants.Request[i] = Expand(s, values)
	}
	return &placed
}

// RunsIn reports whether the manifest's placement includes a region.
func (m *Manifest) RunsIn(region string) bool {
	if len(m.Placement.Regions) == 0 {
		return true
	}
	for _, r := range m.Placement.Regions {
		if r == region {
			return true
		}
	}
	return false
}
