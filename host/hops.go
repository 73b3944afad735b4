package host

import "strconv"

// HopsHeader says of a message how many publishes of functions, each for the message
// of the one before, led to it. A function that publishes to what triggers it would
// go on for ever.
const HopsHeader = "Pelton-Hops"

// hop gives a message one hop more than the one that it is published for has, and
// refuses it above the limit.
func (c *Call) hop(d *Delivery, m *Outgoing) error {
	hops := 1 + c.hopsOf(d)
	if c.limits.Hops > 0 && hops > c.limits.Hops {
		return Errorf(Limit, "publish: the message would be number %d of a chain of functions, limits.hops is %d; does one publish to what triggers it?", hops, c.limits.Hops)
	}
	headers := make(map[string][]string, len(m.Headers)+1)
	for name, values := range m.Headers {
		headers[name] = values
	}
	headers[HopsHeader] = []string{strconv.Itoa(hops)}
	m.Headers = headers
	return nil
}

// hopsOf is a message's hops, or the most of a batch.
func (c *Call) hopsOf(d *Delivery) (most int) {
	if d.Message != nil {
		return hopsIn(d.Message.Headers)
	}
	for i := range c.deliveries {
		most = max(most, hopsIn(c.deliveries[i].Message.Headers))
	}
	return most
}

// hopsIn reads the header; what is no number of hops counts as none.
func hopsIn(headers map[string][]string) int {
	values := headers[HopsHeader]
	if len(values) == 0 {
		return 0
	}
	n, err := strconv.Atoi(values[0])
	if err != nil || n < 0 || n > maxHops {
		return 0
	}
	return n
}

// maxHops is above every limit.
const maxHops = 1 << 20
