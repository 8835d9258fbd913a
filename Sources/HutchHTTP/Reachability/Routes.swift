import CNetlink
import CSystem

/// Two sockets of netlink (rtnetlink(7)): one for notices, and one for questions and answers.
final class Routes {
  /// Readable when a link, an address or a route has changed.
  let notices: Int32
  private let questions: Int32
  private var number: UInt32 = 0

  private init(_ notices: Int32, _ questions: Int32) {
    self.notices = notices
    self.questions = questions
  }

  convenience init() throws(Failure) {
    var groups: UInt32 = 0
    for group in [
      RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR, RTNLGRP_IPV4_ROUTE,
      RTNLGRP_IPV6_ROUTE, RTNLGRP_IPV4_RULE, RTNLGRP_IPV6_RULE,
    ] {
      groups |= 1 << (group.rawValue - 1)
    }
    let notices = try Routes.open(groups)
    do throws(Failure) {
      self.init(notices, try Routes.open(0))
    } catch {
      close(notices)
      throw error
    }
  }

  deinit {
    close(notices)
    close(questions)
  }

  private static func open(_ groups: UInt32) throws(Failure) -> Int32 {
    let type = Int32(SOCK_RAW.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue)
    let number = socket(AF_NETLINK, type, NETLINK_ROUTE)
    guard number >= 0, let socket = Files.aboveStreams(number) else {
      throw .system("cannot make a socket of netlink")
    }
    var address = sockaddr_nl()
    address.nl_family = sa_family_t(AF_NETLINK)
    address.nl_groups = groups
    let code = withUnsafePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        bind(socket, $0, socklen_t(MemoryLayout<sockaddr_nl>.size))
      }
    }
    guard code == 0 else {
      let failure = Failure.system("cannot listen to netlink")
      close(socket)
      throw failure
    }
    return socket
  }

  /// Takes the notices that wait. True: there was one, or some were lost.
  func haveChanged() -> Bool {
    var isChanged = false
    var byte: UInt8 = 0
    // A datagram is cut to what there is room for: what it says is asked for again.
    while recv(notices, &byte, 1, 0) >= 0 || hutch_errno() == ENOBUFS || hutch_errno() == EINTR {
      isChanged = true
    }
    return isChanged
  }

  // MARK: the route to the internet

  /// Whether the kernel would send a packet to the internet in one of the two families: over a
  /// link that runs and is no loopback, from an address that is valid beyond the link. Rules, other
  /// tables and split default routes, as of VPNs, are the kernel's to follow.
  func lead() -> Monitor.State {
    // Addresses of a.root-servers.net, since the kernel wants one. Nothing is sent there.
    let old = lead(AF_INET, literal("198.41.0.4"))
    let new = lead(AF_INET6, literal("2001:503:ba3e::2:30"))
    if old == .reachable || new == .reachable { return .reachable }
    return old == .unknown || new == .unknown ? .unknown : .unreachable
  }

  private func lead(_ family: Int32, _ destination: UnsafePointer<CChar>) -> Monitor.State {
    let size = family == AF_INET ? 4 : 16
    var question = hutch_route_question()
    let unused = MemoryLayout.size(ofValue: question.address) - size
    question.header.nlmsg_len = UInt32(MemoryLayout<hutch_route_question>.size - unused)
    question.header.nlmsg_type = UInt16(RTM_GETROUTE)
    question.route.rtm_family = UInt8(family)
    question.route.rtm_dst_len = UInt8(size * 8)
    question.destination.rta_type = UInt16(RTA_DST.rawValue)
    question.destination.rta_len = UInt16(MemoryLayout<rtattr>.size + size)
    inet_pton(family, destination, &question.address)
    var link: UInt32?
    var hasSource = false
    let found = ask(&question, UInt16(RTM_NEWROUTE)) { answer in
      guard answer.count >= MemoryLayout<rtmsg>.size,
        answer.load(as: rtmsg.self).rtm_type == UInt8(RTN_UNICAST)
      else { return }
      Routes.eachAttribute(of: answer) { type, value in
        if type == UInt16(RTA_OIF.rawValue), value.count == 4 {
          link = value.loadUnaligned(as: UInt32.self)
        }
        // fe80::/10 is valid on its link only.
        if type == UInt16(RTA_PREFSRC.rawValue), value.count == size {
          hasSource = size == 4 || value[0] != 0xFE || value[1] & 0xC0 != 0x80
        }
      }
    }
    guard found else { return .unknown }
    guard let link, hasSource else { return .unreachable }
    return runs(link)
  }

  /// Whether a link is up, has a carrier, and is no loopback.
  private func runs(_ link: UInt32) -> Monitor.State {
    var question = hutch_link_message()
    question.header.nlmsg_len = UInt32(MemoryLayout<hutch_link_message>.size)
    question.header.nlmsg_type = UInt16(RTM_GETLINK)
    question.link.ifi_index = Int32(bitPattern: link)
    var flags: UInt32 = 0
    let found = ask(&question, UInt16(RTM_NEWLINK)) { answer in
      if answer.count >= MemoryLayout<ifinfomsg>.size {
        flags = answer.load(as: ifinfomsg.self).ifi_flags
      }
    }
    guard found else { return .unknown }
    let wanted = UInt32(IFF_UP | IFF_RUNNING)
    let all = wanted | UInt32(IFF_LOOPBACK)
    return flags & all == wanted ? .reachable : .unreachable
  }

  /// Sends a question, which begins with its header, and calls `body` with what follows the header
  /// of the answer, if its type is the one wanted: the kernel may answer with an error. The answer
  /// is there when the question has been sent. False: there was none.
  private func ask<Question>(
    _ question: inout Question, _ type: UInt16, _ body: (Bytes) -> Void
  ) -> Bool {
    number &+= 1
    // The pointer is to the whole question. One to its header would permit the compiler to leave
    // the rest unwritten.
    let isSent = withUnsafeMutablePointer(to: &question) { whole in
      let header = UnsafeMutableRawPointer(whole).assumingMemoryBound(to: nlmsghdr.self)
      header.pointee.nlmsg_flags = UInt16(NLM_F_REQUEST)
      header.pointee.nlmsg_seq = number
      let size = Int(header.pointee.nlmsg_len)
      return send(questions, whole, size, 0) == size
    }
    guard isSent else { return false }
    let head = MemoryLayout<nlmsghdr>.size
    return withUnsafeTemporaryAllocation(byteCount: 8192, alignment: 16) { buffer in
      while true {
        let count = recv(questions, buffer.baseAddress!, buffer.count, 0)
        if count < 0 && hutch_errno() == EINTR { continue }
        guard count >= head else { return false }
        let header = buffer.load(as: nlmsghdr.self)
        // The rest of an earlier answer.
        if header.nlmsg_seq != number { continue }
        let end = min(count, Int(header.nlmsg_len))
        if header.nlmsg_type == type && end > head { body(Bytes(rebasing: buffer[head..<end])) }
        return true
      }
    }
  }

  /// Calls `body` with the type and the value of each attribute of a route.
  private static func eachAttribute(of answer: Bytes, _ body: (UInt16, Bytes) -> Void) {
    let head = MemoryLayout<rtattr>.size
    var offset = MemoryLayout<rtmsg>.size
    while offset + head <= answer.count {
      let attribute = answer.loadUnaligned(fromByteOffset: offset, as: rtattr.self)
      let size = Int(attribute.rta_len)
      guard size >= head, offset + size <= answer.count else { return }
      body(attribute.rta_type, Bytes(rebasing: answer[offset + head..<offset + size]))
      offset += (size + 3) & ~3
    }
  }
}
