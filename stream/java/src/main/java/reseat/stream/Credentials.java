package reseat.stream;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.net.Socket;
import java.net.SocketException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManagerFactory;

/**
 * A client's credentials, as `reseat serve --issue` writes them: a line "reseat-server: NAME", then in PEM
 * the key, its certificate, and the certificate of the only authority that is trusted.
 */
final class Credentials {
    private static final Pattern BLOCK =
            Pattern.compile("-----BEGIN ([A-Z ]+)-----([A-Za-z0-9+/=\\s]+)-----END \\1-----");

    private final String server;
    private final SSLContext context;

    private Credentials(String server, SSLContext context) {
        this.server = server;
        this.context = context;
    }

    /** The file for @host: $RESEAT_CREDENTIALS, else HOST.pem, or the only .pem file, of reseat/servers. */
    private static Path find(String host) throws IOException {
        String named = System.getenv("RESEAT_CREDENTIALS");
        if (named != null && !named.isEmpty())
            return Path.of(named);
        String config = System.getenv("XDG_CONFIG_HOME");
        Path folder = config != null && config.startsWith("/") ? Path.of(config)
                : Path.of(System.getProperty("user.home"), ".config");
        folder = folder.resolve("reseat").resolve("servers");
        Path own = folder.resolve(host + ".pem");
        if (Files.exists(own))
            return own;
        if (Files.isDirectory(folder)) {
            try (Stream<Path> files = Files.list(folder)) {
                List<Path> found = files.filter(file -> file.toString().endsWith(".pem")).toList();
                if (found.size() == 1)
                    return found.get(0);
            }
        }
        throw unusable("there are no credentials for " + host + ": put the file that `reseat "
                + "serve --issue` wrote there to " + own + " (mode 0600), or name it in RESEAT_CREDENTIALS");
    }

    private static ReseatException unusable(String why) {
        return new ReseatException(ReseatException.Reason.NO_SERVICE, why);
    }

    /** Read the credentials for a host. Throws ReseatException where there are none that can be used. */
    static Credentials load(String host) throws IOException {
        Path path = find(host);
        String text;
        try {
            Object mode = Files.getAttribute(path, "unix:mode");
            if (((Integer) mode & 0077) != 0)
                throw unusable(path + " can be accessed by other users: chmod 600 " + path);
            text = Files.readString(path, StandardCharsets.ISO_8859_1);
        } catch (IOException e) {
            throw unusable("the credentials cannot be read: " + e);
        }
        String first = text.lines().findFirst().orElse("");
        String prefix = "reseat-server: ";
        PrivateKey key = null;
        List<Certificate> certificates = new ArrayList<>();

        try {
            for (Matcher block = BLOCK.matcher(text); block.find();) {
                byte[] bytes = Base64.getMimeDecoder().decode(block.group(2));
                if (block.group(1).equals("PRIVATE KEY"))
                    key = KeyFactory.getInstance("Ed25519")
                            .generatePrivate(new PKCS8EncodedKeySpec(bytes));
                else if (block.group(1).equals("CERTIFICATE"))
                    certificates.add(CertificateFactory.getInstance("X.509")
                            .generateCertificate(new ByteArrayInputStream(bytes)));
            }
            if (!first.startsWith(prefix) || key == null || certificates.size() != 2)
                throw unusable(path + " is no file of credentials as `reseat serve --issue` "
                        + "writes them");
            return new Credentials(first.substring(prefix.length()).strip(),
                    context(key, certificates.get(0), certificates.get(1)));
        } catch (GeneralSecurityException e) {
            throw unusable(path + ": " + e.getMessage());
        }
    }

    private static SSLContext context(PrivateKey key, Certificate own, Certificate authority)
            throws GeneralSecurityException, IOException {
        KeyStore keys = KeyStore.getInstance("PKCS12");
        keys.load(null, null);
        keys.setKeyEntry("own", key, new char[0], new Certificate[] {own});
        KeyManagerFactory shown = KeyManagerFactory.getInstance("PKIX");
        shown.init(keys, new char[0]);
        KeyStore trusted = KeyStore.getInstance("PKCS12");
        trusted.load(null, null);
        trusted.setCertificateEntry("authority", authority);
        TrustManagerFactory believed = TrustManagerFactory.getInstance("PKIX");
        believed.init(trusted);
        SSLContext context = SSLContext.getInstance("TLSv1.3");
        context.init(shown.getKeyManagers(), believed.getTrustManagers(), null);
        return context;
    }

    /** Prove both ends to each other, over a connected socket, which is taken. Blocks. */
    SSLSocket handshake(Socket plain, int port) throws IOException {
        SSLSocket socket = (SSLSocket) context.getSocketFactory().createSocket(plain, server, port, true);
        SSLParameters parameters = socket.getSSLParameters();
        parameters.setProtocols(new String[] {"TLSv1.3"});
        parameters.setEndpointIdentificationAlgorithm("HTTPS"); // The certificate has the server's name.
        socket.setSSLParameters(parameters);
        try {
            socket.startHandshake();
        } catch (SocketException e) { // It hung up before it had all that we say.
            throw new IOException("the service ended the handshake; is this certificate revoked?", e);
        }
        if (socket.getInputStream().read() < 0) // One byte says that the client is admitted.
            throw new IOException("the service does not admit this certificate; is it revoked?");
        return socket;
    }
}
