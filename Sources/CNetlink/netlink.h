// The kernel's headers of routes and links (netlink(7), rtnetlink(7)).
#ifndef HUTCH_CNETLINK_H
#define HUTCH_CNETLINK_H

// Before them: then the names of libc are CSystem's alone.
#include "../CSystem/system.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <linux/netlink.h>
#include <linux/rtnetlink.h>

// A message of netlink that asks for the route to one address.
struct hutch_route_question {
  struct nlmsghdr header;
  struct rtmsg route;
  struct rtattr destination;
  struct in6_addr address;  // the first four bytes: one of IPv4
};

// A message of netlink about a link.
struct hutch_link_message {
  struct nlmsghdr header;
  struct ifinfomsg link;
};

#endif
