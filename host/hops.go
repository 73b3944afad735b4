package host

import (
	"maps"
	"strconv"
)

// HopsHeader says of a message how many publishes and requests of functions, each for
// the message of the one before, led to it. A function that sends to what triggers it
// would go on for ever.
const HopsHeader = "Pelton-Hops"

// hop gives a message, or a request, one hop more than the one that it is sent for
// has, and refuses it above the limit.
func (c *Call) hop(d *Delivery, headers *map[string][]string) error {
	hops := 1 + c.hopsOf(d)
	if c.limits.Hops > 0 && hops > c.limits.Hops {
		return Errorf(Limit, "the message would be number %d of a chain of functions, limits.hops is %d; does one send to what triggers it?", hops, c.limits.Hops)
	}
	more := make(map[string][]string, len(*headers)+1) // the guest's own stay as they are
	maps.Copy(more, *headers)
	more[HopsHeader] = []string{strconv.Itoa(hops)}
	*headers = more
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
