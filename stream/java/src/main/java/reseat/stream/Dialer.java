package reseat.stream;

import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.BufferUnderflowException;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.net.ssl.SSLSocket;
import jdk.net.ExtendedSocketOptions;
import reseat.stream.ReseatException.Reason;

/** Connects to the service and opens the stream, as often as it is needed. */
final class Dialer {
    private static final int CONNECT_MS = 30_000;
    private static final Pattern HOST_PORT = Pattern.compile("(.+):(\\d{1,5})");

    private final Reseat.Builder wanted;
    private final String address;
    private volatile Attempt attempt;
    private boolean shared;

    Dialer(Reseat.Builder wanted) {
        this.wanted = wanted;
        String named = wanted.address != null ? wanted.address : System.getenv("RESEAT_STREAM");
        address = named != null && !named.isEmpty() ? named : "unix:" + folder() + "/stream.sock";
        shared = wanted.shared && address.startsWith("unix:");
    }

    /** The user's runtime folder for reseat, as all its programs find it. */
    private static String folder() {
        String runtime = System.getenv("XDG_RUNTIME_DIR");
        if (runtime != null && runtime.startsWith("/") && Files.isDirectory(Path.of(runtime)))
            return runtime + "/reseat";
        try {
            Object uid = Files.getAttribute(Path.of("/proc/self"), "unix:uid");
            return Files.isDirectory(Path.of("/run/user/" + uid)) ? "/run/user/" + uid + "/reseat"
                    : "/tmp/reseat-" + uid;
        } catch (IOException e) {
            throw new ReseatException(Reason.NO_SERVICE,
                    "XDG_RUNTIME_DIR is not set: set it, or name the service in RESEAT_STREAM", e);
        }
    }

    /** One attempt, which cancel() ends from another thread. */
    private final class Attempt {
        private Closeable socket;
        private boolean cancelled;

        private synchronized <T extends Closeable> T begun(T made) throws IOException {
            socket = made;
            if (cancelled)
                made.close();
            return made;
        }

        synchronized void cancel() {
            cancelled = true;
            try {
                if (socket != null)
                    socket.close();
            } catch (IOException e) {
                // The attempt has failed already.
            }
        }

        Connection run() throws IOException {
            for (;;) {
                Wire wire = connect();
                Connection made = null;
                try {
                    made = open(wire);
                    if (made != null)
                        return made;
                } catch (BufferUnderflowException e) {
                    throw new IOException("it sent half a frame", e);
                } finally {
                    if (made == null)
                        wire.close();
                }
                shared = false; // The area cannot be opened here.
            }
        }

        private Wire connect() throws IOException {
            boolean unix = address.startsWith("unix:");
            if (!unix && !address.startsWith("tcp:"))
                throw unknown();
            try {
                return unix ? connectUnix(address.substring(5)) : connectTcp(address.substring(4));
            } catch (IOException e) {
                throw new ReseatException(Reason.NO_SERVICE, "cannot connect to the stream service at "
                        + address + ": " + text(e) + (unix ? ": start `reseat stream serve`"
                                : ": is `reseat stream serve` running there?"), e);
            }
        }

        private ReseatException unknown() {
            return new ReseatException(Reason.NO_SERVICE,
                    address + " is no address of a stream service: give unix:PATH or tcp:HOST:PORT");
        }

        private Wire connectUnix(String path) throws IOException {
            SocketChannel channel = begun(SocketChannel.open(StandardProtocolFamily.UNIX));
            try {
                channel.connect(UnixDomainSocketAddress.of(path));
                Object peer = channel.getOption(ExtendedSocketOptions.SO_PEERCRED).user();
                if (!peer.equals(Files.getOwner(Path.of("/proc/self"))))
                    throw new IOException("it is owned by another user (" + peer + ")");
                return new Wire(channel);
            } catch (IOException e) {
                channel.close();
                throw e;
            }
        }

        private Wire connectTcp(String where) throws IOException {
            Matcher parts = HOST_PORT.matcher(where);
            if (!parts.matches() || Integer.parseInt(parts.group(2)) > 65535)
                throw unknown();
            String host = parts.group(1).replaceAll("^\\[|]$", "");
            int port = Integer.parseInt(parts.group(2));
            Credentials credentials = Credentials.load(host);
            Socket plain = begun(new Socket());
            try {
                plain.setTcpNoDelay(true);
                plain.setKeepAlive(true);
                plain.connect(new InetSocketAddress(host, port), CONNECT_MS);
                plain.setSoTimeout(CONNECT_MS);
                SSLSocket socket = credentials.handshake(plain, port);
                socket.setSoTimeout(0);
                return new Wire(null, plain, socket.getInputStream(), socket.getOutputStream());
            } catch (IOException e) {
                plain.close();
                throw e;
            }
        }

        /** Null: the area cannot be shared. */
        private Connection open(Wire wire) throws IOException {
            byte[] request = wanted.request(shared);
            byte[] frame = new byte[8 + request.length];
            System.arraycopy(request, 0, frame, 8, request.length);
            wire.write(Wire.OPEN, frame, frame.length);
            Wire.Frame answer = wire.read();
            if (answer.type() == Wire.REFUSED)
                throw new ReseatException(Reason.REFUSED, Wire.sentence(answer.body()));
            if (answer.type() != Wire.OPENED)
                throw new IOException("it answered with a frame of type " + answer.type());
            Wire.Opened opened = new Wire.Opened(answer.body());
            if (!opened.area.isEmpty() && wire.channel == null)
                throw new IOException("it named memory of this machine, though it is on another one");
            if (opened.area.isEmpty() && Math.max(opened.input, opened.output) > Wire.BODY_MAX)
                throw new ReseatException(Reason.REFUSED, "records of more than " + Wire.BODY_MAX
                        + " bytes need memory shared with the service, on its machine");
            if (opened.area.isEmpty())
                return new SocketConnection(wire, opened);
            try {
                return new SharedConnection(wire.channel, opened);
            } catch (IOException | ArithmeticException e) {
                return null;
            }
        }
    }

    private static String text(Exception e) {
        return e instanceof EOFException ? "it hung up" : e.getMessage() != null ? e.getMessage() : e.getClass().getSimpleName();
    }

    /**
     * Connect and open the stream. Blocks until the kernel is built, at most @nanos (0: no limit).
     *
     * <p>A thread of its own does it: a name that is looked up and a handshake cannot be interrupted.
     *
     * @throws ReseatException NO_SERVICE (it may help to try again), REFUSED or TIMED_OUT
     */
    Connection open(long nanos) throws InterruptedException {
        Attempt begun = new Attempt();
        attempt = begun;
        FutureTask<Connection> task = new FutureTask<>(begun::run);
        Thread thread = new Thread(task, "reseat-stream-open");
        thread.setDaemon(true);
        thread.start();
        boolean done = false;
        try {
            Connection made = nanos == 0 ? task.get() : task.get(nanos, TimeUnit.NANOSECONDS);
            done = true;
            return made;
        } catch (TimeoutException e) {
            throw new ReseatException(Reason.TIMED_OUT,
                    "the stream was not opened within " + nanos / 1_000_000 + " ms");
        } catch (ExecutionException e) {
            if (e.getCause() instanceof ReseatException known)
                throw known;
            if (e.getCause() instanceof IOException io)
                throw new ReseatException(Reason.NO_SERVICE, "the stream service at " + address
                        + " ended the connection: " + text(io), io);
            throw new IllegalStateException(e.getCause());
        } finally {
            if (!done)
                begun.cancel();
        }
    }

    /** Make the open() that is under way fail, if there is one. From any thread. */
    void cancel() {
        attempt.cancel();
    }
}
