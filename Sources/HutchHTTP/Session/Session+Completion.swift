import CHutchHTTP
import CSystem

/// Completions: on the session's thread, or by libhutch on a queue or in a port.
extension Session {
  /// Makes the completion of a task that has ended, or leaves it where the host wants it. If
  /// libhutch takes no task, because memory or the queue's room ran out, this thread makes it.
  func deliver(_ task: HTTPTask) {
    if task.request.port == nil && task.request.queue == nil || !submit(task) {
      task.complete()
      task.giveContextBack()
    }
  }

  private func submit(_ task: HTTPTask) -> Bool {
    var options = hutch_task_options()
    options.struct_size = MemoryLayout<hutch_task_options>.size
    options.port = task.request.port
    options.context = Unmanaged.passRetained(task).toOpaque()
    options.complete = { context, _ in
      Unmanaged<HTTPTask>.fromOpaque(context!).takeUnretainedValue().complete()
    }
    options.release = { context in
      let reference = Unmanaged<HTTPTask>.fromOpaque(context!)
      let task = reference.takeUnretainedValue()
      if !task.session.isSubmittingHere { task.giveContextBack() }
      reference.release()
    }
    isSubmitting = true
    let status = hutch_queue_submit(
      task.request.queue ?? portQueue, { _, _ in Status.done.code }, nil, nil, &options, nil)
    isSubmitting = false
    guard status == HUTCH_OK else { return false }
    if task.request.queue == nil { hutch_queue_run(portQueue, 0, nil) }
    return true
  }

  /// True within a submission of this thread: what libhutch releases here was not taken.
  private var isSubmittingHere: Bool { ThreadState.workerOf == identity && isSubmitting }
}

extension HTTPTask {
  /// Makes the host's completion.
  func complete() {
    guard let complete = request.complete else { return }
    var completion = hutch_http_completion()
    completion.struct_size = MemoryLayout<hutch_http_completion>.size
    completion.status = status
    completion.task = pointer
    var error = self.error
    error.struct_size = MemoryLayout<hutch_error>.size
    withUnsafePointer(to: &error) {
      if status < 0 { completion.error = $0 }
      calling { complete(request.context, &completion) }
    }
  }

  /// The task does not use the host's context any more. Called once.
  func giveContextBack() {
    ThreadState.give(request.context, back: request.release, of: session.identity)
  }
}
