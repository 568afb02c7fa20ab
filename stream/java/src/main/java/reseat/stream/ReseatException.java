package reseat.stream;

/** A stream could not be opened or cannot go on. The message says why and what to do. */
public final class ReseatException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** What a program can decide by. */
    public enum Reason {
        /** Nobody listens at the service's address. A later call tries again. */
        NO_SERVICE,
        /** The service does not open the stream: an unknown kernel, wrong constants, a kernel that
         * does not build, a limit. The message is the service's. */
        REFUSED,
        /** The stream has failed for good, as when its kernel wrote beyond its output. The message
         * is the service's. */
        FAILED,
        /** The timeout of {@link Reseat.Builder#timeout} passed. The call can be made again. */
        TIMED_OUT,
        /** The thread was interrupted; its interrupt status is still set. The call can be made
         * again. */
        INTERRUPTED,
        /** {@link Accelerator#close} was called. */
        CLOSED
    }

    private final Reason reason;

    ReseatException(Reason reason, String message) {
        this(reason, message, null);
    }

    ReseatException(Reason reason, String message, Throwable cause) {
        super(message, cause);
        this.reason = reason;
    }

    /**
     * Why it happened.
     *
     * @return the reason
     */
    public Reason reason() {
        return reason;
    }
}
