// Group responses.

public import CHutchHTTP
import CSystem

/// Calls `body` with the response of a task, and whether the task has ended.
private func withResponse(
  _ pointer: OpaquePointer?, _ body: (Response, Bool) throws(Failure) -> Status
) -> hutch_status {
  with(pointer, HTTPTask.self) { (task) throws(Failure) in
    let (response, hasEnded) = task.session.lock.withLock { (task.response, task.state == .ended) }
    guard let response else { return hasEnded ? .notFound : .wouldBlock }
    return try body(response, hasEnded)
  }
}

@_cdecl("hutch_http_task_response") @implementation
public func hutch_http_task_response(
  _ task: OpaquePointer!, _ out: UnsafeMutablePointer<hutch_http_response>!
) -> hutch_status {
  withResponse(task) { (response, hasEnded) throws(Failure) in
    try filling(out) { () throws(Failure) in
      var told = hutch_http_response()
      told.code = response.code
      told.version = response.version
      told.url = UnsafePointer(response.url.start)
      told.redirects = response.redirects
      told.header_count = UInt64(response.fields.count)
      told.from_cache = response.isFromCache ? 1 : 0
      if hasEnded, !response.body.isEmpty {
        told.body = UnsafeRawPointer(response.body.elements.baseAddress)
        told.body_size = UInt64(response.body.count)
      }
      return told
    }
  }
}

@_cdecl("hutch_http_task_open_body") @implementation
public func hutch_http_task_open_body(
  _ task: OpaquePointer!, _ descriptor: UnsafeMutablePointer<Int32>!,
  _ offset: UnsafeMutablePointer<UInt64>!, _ size: UnsafeMutablePointer<UInt64>!
) -> hutch_status {
  descriptor?.pointee = -1
  return withResponse(task) { (response, hasEnded) throws(Failure) in
    guard let descriptor, let offset, let size else { throw .invalid("a place is NULL") }
    guard hasEnded else { return .wouldBlock }
    guard let place = response.place else { return .notFound }
    descriptor.pointee = try place.file.duplicate()
    offset.pointee = UInt64(place.bytes.lowerBound)
    size.pointee = UInt64(place.bytes.count)
    return .done
  }
}

@_cdecl("hutch_http_task_decoded") @implementation
public func hutch_http_task_decoded(
  _ task: OpaquePointer!, _ out: UnsafeMutablePointer<hutch_http_decoded>!
) -> hutch_status {
  withResponse(task) { (response, hasEnded) throws(Failure) in
    guard hasEnded else { return .wouldBlock }
    return try filling(out) { () throws(Failure) in
      guard let index = response.decoder else { return nil }
      var told = hutch_http_decoded()
      told.decoder = UInt64(index)
      told.object = response.object
      if response.object == nil {
        let text = response.text?.bytes.elements ?? response.body.elements
        told.text = UnsafeRawPointer(text.baseAddress)
        told.text_size = UInt64(text.count)
      }
      return told
    }
  }
}

@_cdecl("hutch_http_task_header") @implementation
public func hutch_http_task_header(
  _ task: OpaquePointer!, _ name: UnsafePointer<CChar>!, _ index: UInt64,
  _ value: UnsafeMutablePointer<UnsafePointer<CChar>?>!
) -> hutch_status {
  value?.pointee = nil
  return withResponse(task) { (response, _) throws(Failure) in
    guard let name, let value else { throw .invalid("the name or the value is NULL") }
    var place = 0
    var left = index
    while let found = response.fields.next(name, &place) {
      if left == 0 {
        value.pointee = found
        return .done
      }
      left -= 1
    }
    return .notFound
  }
}

@_cdecl("hutch_http_task_header_at") @implementation
public func hutch_http_task_header_at(
  _ task: OpaquePointer!, _ index: UInt64, _ out: UnsafeMutablePointer<hutch_http_header>!
) -> hutch_status {
  withResponse(task) { (response, _) throws(Failure) in
    guard let out else { throw .invalid("out is NULL") }
    guard index < UInt64(response.fields.count) else { return .notFound }
    out.pointee = hutch_http_header(
      name: response.fields.name(Int(index)), value: response.fields.value(Int(index)))
    return .done
  }
}
